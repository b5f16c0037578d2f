"""The architecture, read from the source: who may import what, and what stays behind its layer."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"

#: A module imports only from its own package and from packages with a lower number. The modules of
#: the package itself (`errors`, `lru`) are below all others, and so is its lazy `__init__`.
LAYERS = {
    "model": 1,
    "storage": 2,
    "transaction": 3,
    "table": 4,
    "interop": 5,
    "spark": 6,
    "explore": 7,
    "cli": 8,
}

#: Packages that only some of ours may import, and which.
OWNERS = {
    "lance": {"phalanx.storage"},
    "obstore": {"phalanx.storage"},
    "pyspark": {"phalanx.spark", "pyspark_phalanx"},
}

#: What the model cannot do: read a clock, chance, the environment or a file. DataFusion is slow to
#: load, so that the model loads it where it is needed.
NOT_IN_MODEL = {
    *("time", "random", "secrets"),
    *("os", "sys", "platform", "subprocess", "socket"),
    *("io", "pathlib", "shutil", "tempfile", "glob"),
    "datafusion",
}
_CLOCKS = {"now", "utcnow", "today", "uuid1", "uuid4"}

#: Modules of ours that are imported inside of functions, and why.
LAZY = {
    ("phalanx.spark.jar", "phalanx.storage.cache"): "a session needs it only to build the jar",
    ("phalanx.spark.reader", "phalanx.spark.metadata_tables"): "most workers only read rows",
    ("phalanx.spark.catalog", "phalanx.spark.staging"): "most calls change no table",
    ("phalanx.spark", "phalanx.spark.searching"): "most workers only read rows",
    ("phalanx.spark.session", "phalanx.spark.searching"): "most workers only read rows",
    ("phalanx.table.scan", "phalanx.table.torch_dataset"): "it loads PyTorch, which is an extra",
    ("phalanx.table.scan", "phalanx.table.ray_datasource"): "it loads Ray, which is an extra",
    ("pyspark_phalanx", "phalanx.spark.dispatch"): "first it keeps pandas from being loaded",
    ("pyspark_phalanx", "phalanx.spark.workers"): "only earlier versions of PySpark need it",
    ("phalanx.spark.planner", "phalanx.spark.catalog"): "it is loaded ahead only where asked for",
    ("pyspark_phalanx", "phalanx.spark.reader"): "workers that only write do without it",
    ("phalanx.spark.tasks", "pyspark_phalanx"): "it loads pyspark, which planning does without",
    ("phalanx.cli.opening", "phalanx.spark.session"): "Spark is started by one command only",
    ("phalanx.cli.opening", "phalanx.spark.statements"): "Spark is started by one command only",
    ("phalanx.cli.opening", "phalanx.explore"): "its packages are an extra",
    ("phalanx.explore", "phalanx.explore.server"): "its packages are an extra",
}
#: Modules that import others by a name they put together, and why.
DYNAMIC = {
    "phalanx": "`import phalanx` loads nothing that a worker of Spark does not need",
    "phalanx.storage.layouts": "other layouts are above, and loaded only for tables that have one",
    "phalanx.storage.forms": "forms of other clients are above, and loaded only for their tables",
    "phalanx.spark.dispatch": "a call loads only the module that answers it",
}


# Reading the source --------------------------------------------------------------------------


@dataclass(frozen=True)
class Import:
    """One module that is imported, by its full name."""

    module: str
    line: int
    in_function: bool
    #: Whether it is under `if TYPE_CHECKING`, and so never runs.
    for_types: bool


@dataclass(frozen=True)
class Violation:
    module: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.text}"


@dataclass(frozen=True)
class Module:
    name: str
    tree: ast.Module
    known: frozenset[str]

    @property
    def layer(self) -> int:
        """0 for the modules of the package itself."""
        return _layer(self.name.split("."))

    @property
    def is_model(self) -> bool:
        return self.name.startswith("phalanx.model")

    def violation(self, node: ast.AST, text: str) -> Violation:
        return Violation(self.name, getattr(node, "lineno", 0), text)

    @cached_property
    def imports(self) -> list[Import]:
        return list(self._imports(self.tree, False, False))

    def _imports(self, node: ast.AST, in_function: bool, for_types: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(alias.name, child.lineno, in_function, for_types)
            elif isinstance(child, ast.ImportFrom):
                assert not child.level, f"{self.name}: a relative import"
                for name in self._imported(child):
                    yield Import(name, child.lineno, in_function, for_types)
            else:
                is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                types = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
                yield from self._imports(child, in_function or is_function, for_types or types)

    def _imported(self, node: ast.ImportFrom) -> Iterable[str]:
        """The modules behind `from x import y`: `x.y` where that is a module, else `x`."""
        assert node.module is not None
        full = [f"{node.module}.{alias.name}" for alias in node.names]
        return dict.fromkeys(name if name in self.known else node.module for name in full)

    def calls(self) -> Iterator[ast.Call]:
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.Call))


def _layer(parts: list[str]) -> int:
    if parts[0] != "phalanx" or len(parts) < 2:
        return 0
    return LAYERS.get(parts[1], 0)


def modules_of(root: Path) -> list[Module]:
    """Every module below a folder."""
    trees = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        trees[name] = ast.parse(path.read_text(encoding="utf-8"), str(path))
    known = frozenset(trees)
    return [Module(name, tree, known) for name, tree in trees.items()]


# The rules -----------------------------------------------------------------------------------


def unknown_packages(modules: Iterable[Module]) -> Iterator[Violation]:
    """Packages that have no place among the layers."""
    for module in modules:
        parts = module.name.split(".")
        if parts[0] == "phalanx" and len(parts) > 2 and parts[1] not in LAYERS:
            yield Violation(module.name, 1, f"phalanx.{parts[1]} is in no layer")


def upward_imports(modules: Iterable[Module]) -> Iterator[Violation]:
    """Imports from a layer above, or beside. Those that are only for types count as well."""
    for module in modules:
        own = module.name.split(".")
        if module.name in ("phalanx", "pyspark_phalanx"):
            continue  # The public names of the library, and the door for Spark's workers.
        for imported in module.imports:
            other = imported.module.split(".")
            if other[0] != "phalanx" or other[1:2] == own[1:2]:
                continue
            if _layer(other) >= max(_layer(own), 1):
                yield Violation(module.name, imported.line, f"imports {imported.module}")


def foreign_packages(modules: Iterable[Module]) -> Iterator[Violation]:
    """Imports of a package that belongs to another layer, such as Lance outside of storage."""
    for module in modules:
        for imported in module.imports:
            owners = OWNERS.get(imported.module.split(".")[0])
            if owners and not any(f"{module.name}.".startswith(f"{owner}.") for owner in owners):
                yield Violation(module.name, imported.line, f"imports {imported.module}")


def impure_model(modules: Iterable[Module]) -> Iterator[Violation]:
    """What makes the model depend on anything but its arguments, or slow to load."""
    for module in modules:
        if not module.is_model:
            continue
        for imported in module.imports:
            lazy = imported.module == "datafusion" and imported.in_function
            if imported.module.split(".")[0] in NOT_IN_MODEL and not lazy:
                yield Violation(module.name, imported.line, f"imports {imported.module}")
        for call in module.calls():
            name = call.func.attr if isinstance(call.func, ast.Attribute) else None
            if name in _CLOCKS or (isinstance(call.func, ast.Name) and call.func.id == "open"):
                yield module.violation(call, f"calls {ast.unparse(call.func)}()")


def cycles(modules: Iterable[Module]) -> Iterator[Violation]:
    """Modules that import each other, also by way of others or inside of functions."""
    graph = {
        module.name: {imported.module for imported in module.imports if not imported.for_types}
        for module in modules
    }
    for group in _components(graph):
        yield Violation(group[0], 1, f"a cycle: {', '.join(group)}")


def _components(graph: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Groups of nodes, each of which can be reached from all others of its group."""
    reachable: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for node in graph.get(waiting.pop(), set()) & graph.keys():
                if node not in seen:
                    seen.add(node)
                    waiting.append(node)
        reachable[start] = seen
    done: set[str] = set()
    for start in sorted(graph):
        if start in reachable[start] and start not in done:
            group = sorted(n for n in reachable[start] if start in reachable[n])
            done.update(group)
            yield group


def lazy_imports(modules: Iterable[Module]) -> Iterator[tuple[tuple[str, str], Violation]]:
    """Imports of our own modules inside of functions."""
    for module in modules:
        for imported in module.imports:
            if imported.in_function and imported.module.split(".")[0] in (
                "phalanx",
                "pyspark_phalanx",
            ):
                text = f"imports {imported.module} inside of a function"
                yield (module.name, imported.module), Violation(module.name, imported.line, text)


def dynamic_imports(modules: Iterable[Module]) -> Iterator[Violation]:
    """Imports by name, which none of these rules can see."""
    for module in modules:
        for call in module.calls():
            if ast.unparse(call.func) in ("importlib.import_module", "import_module", "__import__"):
                yield module.violation(call, f"calls {ast.unparse(call)}")


def duplicate_classes(modules: Iterable[Module]) -> Iterator[tuple[str, Violation]]:
    """Classes that share a name."""
    places: defaultdict[str, list[tuple[Module, ast.ClassDef]]] = defaultdict(list)
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append((module, node))
    for name, homes in sorted(places.items()):
        if len(homes) > 1:
            module, node = homes[-1]
            others = ", ".join(home.name for home, _ in homes[:-1])
            yield name, module.violation(node, f"class {name} is also in {others}")


def split_ids(modules: Iterable[Module]) -> Iterator[Violation]:
    """Object ids that are taken apart, or put together, outside of the module for names."""
    for module in modules:
        if module.name == "phalanx.storage.names":
            continue
        for call in module.calls():
            if not isinstance(call.func, ast.Attribute):
                continue
            text = call.func.value if call.func.attr == "join" else next(iter(call.args), None)
            splits = call.func.attr in ("join", "split", "rsplit", "partition", "rpartition")
            if splits and isinstance(text, ast.Constant) and text.value == "$":
                yield module.violation(call, f"has {ast.unparse(call)}")


def manifest_readers(modules: Iterable[Module]) -> Iterator[Violation]:
    """Code above storage that reaches for the manifest's dataset, or filters its rows by SQL."""
    for module in modules:
        if module.layer <= LAYERS["storage"]:
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and node.attr == "dataset":
                yield module.violation(node, f"has {ast.unparse(node)}")
        for call in module.calls():
            func = call.func
            if not (isinstance(func, ast.Attribute) and func.attr == "read"):
                continue
            of_manifest = ast.unparse(func.value).split(".")[-1] == "manifest"
            filters = len(call.args) > 1 or any(word.arg == "filter" for word in call.keywords)
            if of_manifest and filters:
                yield module.violation(call, f"has {ast.unparse(func)}() with a filter")


# The source keeps them -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def modules():
    return modules_of(SRC)


def test_there_is_a_source(modules):
    names = {module.name for module in modules}
    assert {"phalanx", "phalanx.model.specs", "phalanx.spark.reader", "pyspark_phalanx"} <= names


@pytest.mark.parametrize(
    "rule",
    [unknown_packages, upward_imports, foreign_packages, impure_model, cycles],
    ids=lambda rule: rule.__name__,
)
def test_rule(modules, rule):
    assert not _listed(rule(modules))


def test_imports_inside_of_functions_have_a_reason(modules):
    lazy = list(lazy_imports(modules))
    assert not _listed(violation for pair, violation in lazy if pair not in LAZY)
    assert {pair for pair, _ in lazy} == LAZY.keys(), "a reason without an import"
    dynamic = list(dynamic_imports(modules))
    assert not _listed(violation for violation in dynamic if violation.module not in DYNAMIC)
    assert {violation.module for violation in dynamic} == DYNAMIC.keys(), "a reason without a call"


def test_a_name_is_one_class(modules):
    duplicates = duplicate_classes(modules)
    assert not _listed(violation for _, violation in duplicates)


@pytest.mark.parametrize(
    "rule", [split_ids, manifest_readers], ids=["split_ids", "manifest_readers"]
)
def test_storage_keeps_its_secrets(modules, rule):
    assert not _listed(rule(modules))


def _listed(violations: Iterable[Violation]) -> str:
    return "\n".join(map(str, violations))


# The rules notice what breaks them -----------------------------------------------------------

Source = Callable[..., list[Module]]


@pytest.fixture
def source(tmp_path) -> Source:
    """Makes modules of a few lines, by name."""

    def make(**files: str) -> list[Module]:
        for name, text in files.items():
            path = tmp_path / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return modules_of(tmp_path)

    return make


class TestTheRulesNotice:
    @pytest.mark.parametrize(
        ("importer", "line"),
        [
            ("phalanx__model__a", "import phalanx.storage.b"),
            ("phalanx__model__a", "from phalanx.storage.b import x"),
            ("phalanx__model__a", "from phalanx.storage import b"),
            ("phalanx__storage__a", "from phalanx.table.b import x"),
            ("phalanx__transaction__a", "def f():\n    from phalanx.table.b import x"),
            ("phalanx__transaction__a", "if TYPE_CHECKING:\n    from phalanx.table.b import x"),
            ("phalanx__table__operations__a", "import phalanx.spark.b"),
            ("phalanx__spark__a", "import phalanx.cli.b"),
            ("phalanx__interop__a", "import phalanx.spark.b"),
            ("phalanx__errors", "import phalanx.model.b"),
        ],
    )
    def test_an_upward_import(self, source, importer, line):
        modules = source(
            **{importer: line, "phalanx__storage__b": "", "phalanx__table__b": "x = 1"}
        )
        (violation,) = upward_imports(modules)
        assert violation.module == importer.replace("__", ".")
        assert violation.text.startswith("imports phalanx.")

    def test_downward_imports_are_fine(self, source):
        modules = source(
            phalanx__table__a="import phalanx.errors\nfrom phalanx.table.operations import b\n"
            "from phalanx.model.c import x\nimport phalanx",
            phalanx__model__c="from phalanx.errors import PhalanxError\nimport phalanx.lru",
            phalanx__spark__d="from phalanx.table.a import Table",
            phalanx__cli__e="import phalanx.spark.d",
        )
        assert not list(upward_imports(modules))

    def test_a_package_without_a_layer(self, source):
        modules = source(phalanx__misc__a="", phalanx__table__b="", phalanx__lru="")
        assert [violation.text for violation in unknown_packages(modules)] == [
            "phalanx.misc is in no layer"
        ]

    @pytest.mark.parametrize(
        ("module", "line"),
        [
            ("phalanx__table__a", "import lance"),
            ("phalanx__table__a", "from lance.dataset import LanceDataset"),
            ("phalanx__cli__a", "def f():\n    import pyspark.sql"),
            ("phalanx__storages__a", "import lance"),
        ],
    )
    def test_a_package_of_another_layer(self, source, module, line):
        (violation,) = foreign_packages(source(**{module: line}))
        assert violation.module == module.replace("__", ".")

    def test_a_package_of_ones_own_is_fine(self, source):
        modules = source(
            phalanx__storage__a="import lance.file",
            phalanx__spark__a="import pyspark",
            pyspark_phalanx="import pyspark",
            phalanx__table__a="import lance_namespace",
        )
        assert not list(foreign_packages(modules))

    @pytest.mark.parametrize(
        "line",
        [
            "import time",
            "from os import environ",
            "import random",
            "from pathlib import Path",
            "import datafusion",
            "def f():\n    import subprocess",
            "import datetime as dt\ndt.datetime.now(dt.UTC)",
            "import uuid\nuuid.uuid4()",
            "open('x')",
        ],
    )
    def test_a_model_that_is_impure(self, source, line):
        assert len(list(impure_model(source(phalanx__model__a=line)))) == 1
        assert not list(impure_model(source(phalanx__model__a="", phalanx__table__a=line)))

    def test_a_model_may_load_datafusion_when_it_needs_it(self, source):
        text = "import uuid\ndef f(x):\n    import datafusion\n    return uuid.UUID(x)"
        assert not list(impure_model(source(phalanx__model__a=text)))

    @pytest.mark.parametrize(
        "back",
        [
            "import phalanx.model.a",
            "from phalanx.model import a",
            "from phalanx.model.a import x",
            "def f():\n    from phalanx.model.a import x",
        ],
    )
    def test_a_cycle(self, source, back):
        modules = source(
            phalanx__model__a="from phalanx.model.b import x",
            phalanx__model__b="from phalanx.model.c import x",
            phalanx__model__c=back,
            phalanx__model__d="import phalanx.model.a",
        )
        (violation,) = cycles(modules)
        assert violation.text == "a cycle: phalanx.model.a, phalanx.model.b, phalanx.model.c"

    def test_a_circle_of_types_alone_is_fine(self, source):
        modules = source(
            phalanx__table__a="from phalanx.table.b import x",
            phalanx__table__b="if TYPE_CHECKING:\n    from phalanx.table.a import y",
        )
        assert not list(cycles(modules))

    def test_an_import_inside_of_a_function(self, source):
        modules = source(
            phalanx__spark__a="class A:\n    def f(self):\n        from phalanx.spark.b import x",
            phalanx__spark__b="import importlib\nimportlib.import_module('phalanx.spark.a')",
        )
        ((pair, _),) = lazy_imports(modules)
        assert pair == ("phalanx.spark.a", "phalanx.spark.b")
        (violation,) = dynamic_imports(modules)
        assert violation.module == "phalanx.spark.b"

    def test_a_class_of_the_same_name(self, source):
        modules = source(
            phalanx__table__a="class Plan: ...\nclass _Job: ...",
            phalanx__spark__a="class Plan: ...\nclass Task: ...",
        )
        ((name, violation),) = duplicate_classes(modules)
        assert name == "Plan"
        assert str(violation) == "phalanx.table.a:1: class Plan is also in phalanx.spark.a"

    @pytest.mark.parametrize(
        "line", ['id.split("$")', 'id.rpartition("$")[0]', '"$".join(parts)', 'id.split("$", 1)']
    )
    def test_an_id_that_is_taken_apart(self, source, line):
        modules = source(phalanx__table__a=line, phalanx__storage__names=line)
        assert [violation.module for violation in split_ids(modules)] == ["phalanx.table.a"]

    @pytest.mark.parametrize(
        "line",
        [
            "manifest.dataset.schema",
            "manifest.read(columns, 'sequence > 1')",
            "snapshot.manifest.read(['x'], filter=f'a = {b}')",
        ],
    )
    def test_a_manifest_that_is_reached_into(self, source, line):
        modules = source(phalanx__table__a=line, phalanx__storage__b=line)
        assert [violation.module for violation in manifest_readers(modules)] == ["phalanx.table.a"]

    @pytest.mark.parametrize("line", ["manifest.read(columns)", "file.read(1, 2)", "dataset = 1"])
    def test_a_manifest_that_is_asked(self, source, line):
        assert not list(manifest_readers(source(phalanx__table__a=line)))
