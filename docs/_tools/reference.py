"""The pages under `reference/`, made from the code each time mkdocs builds the site.

mkdocs runs this file as a hook. Every page is a function that returns Markdown; `PAGES` lists them.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]

# Markdown


def plain(text: object) -> str:
    """A text that Markdown shows as it is, also in a table."""
    return re.sub(r"[\\`*_{}\[\]<>|#&]", lambda sign: f"&#{ord(sign[0])};", str(text))


def cell(text: object) -> str:
    """Markdown that may stand in a table. What looks like a tag there is not one."""
    return str(text).replace("|", "&#124;").replace("\n", " ")


def code(text: object) -> str:
    """A text as code; nothing for an empty one."""
    return f"`{text}`" if text not in (None, "") else ""


def table(names: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    lines = [list(names)]
    lines += [["---"] * len(lines[0])]
    lines += [[cell(value) for value in row] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


# Python


#: What a page shows of the Python API: a heading, and the objects under it.
PYTHON: list[tuple[str, str, list[str]]] = [
    ("Tables", "phalanx", ["create", "open", "check", "repair", "expr", "lit"]),
    ("Queries of text", "phalanx", ["Match", "Phrase", "Boolean"]),
    ("Sessions of Spark", "phalanx.spark.session", ["session", "conf"]),
    ("Parquet", "phalanx.interop.parquet", ["export", "import_"]),
    ("Delta", "phalanx.interop.delta", ["export", "import_"]),
    ("Trees, datasets and tables of others", "phalanx.interop", ["adopt", "upgrade"]),
    ("Key=value trees", "phalanx.interop.hive", ["adopt"]),
]


def python() -> str:
    parts = ["# Python API\n", "Names that are not on this page are not public and may change.\n"]
    for heading, place, names in PYTHON:
        module = importlib.import_module(place)
        parts.append(f"## {heading}\n")
        shown = module.__name__.removesuffix(".session")
        parts += [documented(f"{shown}.{name}", getattr(module, name)) for name in names]
        if heading == "Tables":
            parts += ["## A table\n", *of_class("Table", _phalanx().Table)]
            parts += ["## A scan\n", *of_class("Scan", _module("phalanx.table.scan").Scan)]
            parts += ["## A plan\n", *of_class("Plan", _module("phalanx.table.plan").Plan)]
            transaction = _module("phalanx.table.transaction").TableTransaction
            parts += ["## A transaction\n", *of_class("TableTransaction", transaction)]
    return "\n".join(parts)


def of_class(name: str, kind: type) -> Iterator[str]:
    """The docstring of a class, its properties and its methods."""
    yield prose(inspect.getdoc(kind) or "")
    members = [
        (key, member)
        for base in kind.__mro__
        if base.__module__.startswith("phalanx.")
        for key, member in vars(base).items()
        if not key.startswith("_") and (callable(member) or isinstance(member, property))
    ]
    seen: set[str] = set()
    for key, member in members:
        text = inspect.getdoc(member.fget if isinstance(member, property) else member)
        if text and key not in seen:
            seen.add(key)
            yield documented(f"{name}.{key}", member)


def documented(name: str, member: Any) -> str:
    """A heading, the signature and the docstring."""
    if isinstance(member, property):
        returns = inspect.signature(member.fget).return_annotation  # type: ignore[arg-type]
        signature = f"{name}: {returns}"
    elif inspect.isclass(member):
        signature = f"class {name}{wrapped(inspect.signature(member))}"
    else:
        signature = f"{name}{wrapped(inspect.signature(member))}"
    body = prose(inspect.getdoc(member) or "")
    return f"### `{name}`\n\n```text\n{signature}\n```\n\n{body}\n"


def wrapped(signature: inspect.Signature) -> str:
    """A signature without `self`, over several lines if it is long."""
    parameters = [p for p in signature.parameters.values() if p.name != "self"]
    shown: list[str] = []
    for before, p in zip([None, *parameters], parameters, strict=False):
        if p.kind is p.KEYWORD_ONLY and (before is None or before.kind is not p.KEYWORD_ONLY):
            shown.append("*")
        shown.append(parameter(p))
    if parameters and parameters[-1].kind is inspect.Parameter.POSITIONAL_ONLY:
        shown.append("/")
    returns = signature.return_annotation
    after = "" if returns is signature.empty else f" -> {returns}"
    line = f"({', '.join(shown)}){after}"
    if len(line) < 70:
        return line
    return "(\n" + "".join(f"    {one},\n" for one in shown) + f"){after}"


def parameter(p: inspect.Parameter) -> str:
    """A parameter as it is written; annotations are strings in our modules."""
    stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
    annotation = "" if p.annotation is p.empty else f": {p.annotation}"
    default = "" if p.default is p.empty else f" = {p.default!r}"
    return f"{stars}{p.name}{annotation}{default}"


#: The sections of a docstring that are lists of names.
SECTION = re.compile(r"(Args|Arguments|Raises):")


def prose(docstring: str) -> str:
    """A docstring as Markdown: its sections become lists."""
    lines: list[str] = []
    listed = False
    # An example of a session is a block of its own.
    docstring = re.sub(r"(?m)^>>> .*(?:\n(?!\n).*)*", r"```text\n\g<0>\n```", docstring)
    for line in docstring.splitlines():
        heading = SECTION.fullmatch(line)
        if heading or line == "Returns:":
            listed = heading is not None
            lines += ["", f"**{line.rstrip(':')}**", ""]
        elif line.startswith("    ") and lines and "**" in "".join(lines):
            item = line[4:]
            name, separator, rest = item.partition(": ")
            if listed and separator and not item.startswith(" "):
                lines.append(f"- `{name}`: {rest}")
            else:
                lines.append(("  " if listed else "") + item.strip())
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


# Spark


def procedures() -> str:
    importlib.import_module("phalanx.spark.procedures")
    base = _module("phalanx.spark.procedures.base")
    parts = [
        "# Procedures\n",
        "`CALL lake.system.<name>(table => 'db.events', …)`, where `lake` is the catalog. "
        "Arguments are given by position or by name; those with a default may be left out. "
        "[Phalanx in Spark](../spark.md#procedures) shows some at work.\n",
    ]
    for name, procedure in sorted(base.PROCEDURES.items()):
        parts.append(f"## {name}\n\n{plain(procedure.description)}\n")
        parts.append(
            table(
                ["parameter", "type", "default", "meaning"],
                (
                    [code(p.name), p.type, code(p.default), plain(p.comment)]
                    for p in procedure.parameters
                ),
            )
        )
        result = ", ".join(f"`{key}` {kind}" for key, kind in procedure.result.items())
        parts.append(f"Returns {result}.\n")
    return "\n".join(parts)


def properties() -> str:
    declared = _module("phalanx.model.properties").PROPERTIES
    rows = (
        [
            code(p.name),
            code("" if p.default is None else p.kind.spell(p.default)),
            plain(p.kind.takes),
            "yes" if p.changeable else "at creation only",
            p.meaning,
        ]
        for p in _each(declared)
    )
    return (
        "# Table properties\n\nSet with `create(properties=…)` and `Table.set_properties`, or with "
        "`TBLPROPERTIES`. [Upkeep](../upkeep.md#properties) says how they are checked.\n\n"
        + table(["property", "default", "takes", "can be changed", "meaning"], rows)
    )


def confs() -> str:
    conf = _module("phalanx.spark.conf")
    groups = [
        ("Confs of the session", conf.SESSION, "conf"),
        ("Confs of a catalog", conf.CATALOG, "conf"),
        ("Options of a write", conf.WRITE, "option"),
        ("Options of a read", conf.READ, "option"),
        ("Options of a stream that reads", conf.STREAM, "option"),
    ]
    parts = [
        "# Confs and options of Spark\n",
        "Confs of a catalog follow its name: `spark.sql.catalog.lake.warehouse`. Which place takes "
        "precedence is said in [Settings](../spark.md#settings).\n",
    ]
    for heading, settings, place in groups:
        rows = (
            [
                code(getattr(s, place)),
                code(s.conf if place == "option" and s.conf else ""),
                code("" if s.default is None else s.kind.spell(s.default)),
                plain(s.kind.takes),
                s.meaning,
            ]
            for s in settings
        )
        names = ["name", "also as the conf", "default", "takes", "meaning"]
        parts.append(f"## {heading}\n\n{table(names, rows)}")
    parts.append("## Confs that `session` and `conf` set\n")
    parts.append("They let Spark join by partition keys, and prune by the keys of a join.\n")
    optimizations = _module("phalanx.spark.session")._OPTIMIZATIONS
    parts.append(table(["conf", "value"], ([code(k), code(v)] for k, v in optimizations.items())))
    return "\n".join(parts)


def metadata_tables() -> str:
    tables = _module("phalanx.spark.metadata_tables").TABLES
    parts = [
        "# Metadata tables\n",
        "`SELECT * FROM lake.db.events.partitions` in Spark; in Python each is a method of the "
        "table that returns a pyarrow Table, or `table.specs`.\n",
    ]
    for name, declared in tables.items():
        parts.append(f"## {name}\n\n{(inspect.getdoc(declared.rows) or '').splitlines()[0]}\n")
        if declared.schema is None:
            parts.append(
                "The columns depend on the table: `spec`, one column for each partition field of "
                "any spec, then `rows`, `bytes`, `fragments`, `version` and `uri`.\n"
            )
        else:
            rows = ([code(field.name), code(field.type)] for field in declared.schema)
            parts.append(table(["column", "type"], rows))
    return "\n".join(parts)


# Errors


def errors() -> str:
    module = _module("phalanx.errors")
    kinds = {
        name: kind
        for name, kind in vars(module).items()
        if inspect.isclass(kind) and issubclass(kind, module.PhalanxError)
    }
    messages: dict[str, set[tuple[str, str]]] = {name: set() for name in kinds}
    for path in sorted((ROOT / "src" / "phalanx").rglob("*.py")):
        for kind, text in raised(ast.parse(path.read_text(encoding="utf-8"))):
            if kind in messages:
                room = path.relative_to(ROOT / "src" / "phalanx").parts[0].removesuffix(".py")
                messages[kind].add((room, text))
    parts = [
        "# Errors\n",
        "All errors that are raised on purpose are kinds of `phalanx.PhalanxError`. In the "
        "messages below, … stands for what differs. Spark shows the same sentence as an "
        "`AnalysisException` or `SparkException`. [Reliability](../reliability.md#errors) says "
        "what to do after each kind.\n",
    ]
    for name, kind in kinds.items():
        parents = ", ".join(code(base.__name__) for base in kind.__bases__)
        parts.append(f"## {name}\n\n{inspect.getdoc(kind)} It is a kind of {parents}.\n")
        rows = ([plain(text), code(room)] for room, text in sorted(messages[name]))
        parts.append(table(["message", "from"], rows) if messages[name] else "")
    return "\n".join(parts)


def raised(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The errors that are made with a text, as the name of the class and the text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            text = message(node.args[0])
            if text is not None and text.strip("… "):
                yield node.func.id, text


def message(node: ast.expr) -> str | None:
    """A text with … for every part that is not known; None if it is not text."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(message(part) or "…" for part in node.values)
    return None


# Benchmarks


def bounds() -> str:
    rows = []
    for path in sorted((ROOT / "bench").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Figure":
                rows += [[code(path.stem), *row] for row in bound_of(node)]
    return (
        "# Bounds of the benchmarks\n\nWhat `make bench` demands of each figure, on two cores. A "
        "bound is no result: it is what the command fails at. [Benchmarks](../benchmarks.md) says "
        "what is measured.\n\n" + table(["benchmark", "figure", "bound"], rows)
    )


def bound_of(figure: ast.Call) -> Iterator[list[str]]:
    """The name of a figure and its bound; nothing if it has none that is a number."""
    name, bound = message(figure.args[0]), figure.args[3:4]
    if name is None or not bound or not isinstance(bound[0], ast.Constant):
        return
    unit = figure.args[2].value if isinstance(figure.args[2], ast.Constant) else ""
    least = any(keyword.arg == "at_least" for keyword in figure.keywords)
    yield [plain(name), f"at {'least' if least else 'most'} {bound[0].value} {unit}".strip()]


# The command line


def command_line() -> str | None:
    """The help of every command; None without a command line."""
    try:
        program = _module("phalanx.cli.app").PROGRAM
    except ImportError:
        return None
    import click

    context = click.Context(program, info_name="phalanx")
    parts = ["# Commands\n", "As `phalanx COMMAND --help` prints them.\n"]
    for name in program.list_commands(context):
        command = program.get_command(context, name)
        if command.hidden:
            continue
        inside = click.Context(command, info_name=name, parent=context)
        parts.append(f"## {name}\n\n```text\n{click.unstyle(command.get_help(inside))}\n```\n")
    return "\n".join(parts)


# The site


def _module(name: str) -> ModuleType:
    return importlib.import_module(name)


def _phalanx() -> ModuleType:
    return _module("phalanx")


def _each(declared: Any) -> Iterable[Any]:
    return declared.values() if isinstance(declared, dict) else declared


PAGES: dict[str, tuple[str, Callable[[], str | None]]] = {
    "python": ("Python API", python),
    "procedures": ("Procedures", procedures),
    "properties": ("Table properties", properties),
    "confs": ("Confs and options", confs),
    "metadata-tables": ("Metadata tables", metadata_tables),
    "errors": ("Errors", errors),
    "bounds": ("Bounds of benchmarks", bounds),
    "commands": ("Commands", command_line),
}


def made() -> dict[str, str]:
    """Every page by its path, as Markdown."""
    # mkdocs restores the path after it has loaded a hook, so this is not done at the top.
    if str(ROOT / "src") not in sys.path:
        sys.path.insert(0, str(ROOT / "src"))
    pages = {f"reference/{name}.md": page() for name, (_, page) in PAGES.items()}
    return {path: text for path, text in pages.items() if text is not None}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the reference, and pages that no section names, at the end of the navigation."""
    titles = {f"reference/{name}.md": title for name, (title, _) in PAGES.items()}
    config.extra["reference"] = pages = made()
    nav: list[Any] = list(config.nav or [])
    named = set(re.findall(r"[\w./-]+\.md", str(nav)))
    docs = Path(config.docs_dir)
    others = sorted({path.relative_to(docs).as_posix() for path in docs.glob("*.md")} - named)
    nav.append({"Reference": [{titles[path]: path} for path in pages]})
    if others:
        nav.append({"More": others})
    config.nav = nav
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that were made."""
    for path, text in config.extra["reference"].items():
        files.append(File.generated(config, path, content=text))
    return files
