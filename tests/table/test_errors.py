"""What users see when something is wrong: one sentence, of one family."""

import inspect
import shutil

import pyarrow as pa
import pytest

import phalanx
from phalanx import errors
from phalanx.storage.leaf import evaluating
from phalanx.storage.location import Location

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("country", pa.string())])


@pytest.fixture
def table(root):
    table = phalanx.create(root, SCHEMA, ["country"])
    table.append([{"id": 1, "country": "US"}])
    return table


class TestTheFamily:
    def test_everything_is_a_phalanx_error(self):
        found = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
        assert len(found) > 5
        assert all(issubclass(kind, phalanx.PhalanxError) for kind in found)

    def test_all_of_it_is_public(self):
        for name, _ in inspect.getmembers(errors, inspect.isclass):
            assert getattr(phalanx, name) is getattr(errors, name)

    @pytest.mark.parametrize(
        ("kind", "builtin"),
        [
            (phalanx.InvalidInput, ValueError),
            (phalanx.TableNotFound, FileNotFoundError),
            (phalanx.TableExists, FileExistsError),
        ],
    )
    def test_who_does_not_know_it_catches_what_they_know(self, kind, builtin):
        assert issubclass(kind, builtin)


def mistakes():
    """Every way to misuse a table."""
    rows = [{"id": 2, "country": "US"}]
    return {
        "create: exists": lambda t: phalanx.create(t.uri, SCHEMA),
        "create: field": lambda t: phalanx.create(t.uri + "2", SCHEMA, ["bucket(0, id)"]),
        "open: version": lambda t: phalanx.open(t.uri, version=99),
        "open: nothing": lambda t: phalanx.open(t.uri + "2"),
        "append: extra": lambda t: t.append(pa.table({"id": [1], "x": [1]})),
        "append: missing": lambda t: t.append(pa.table({"country": ["US"]})),
        "append: type": lambda t: t.append(pa.table({"id": ["1"]})),
        "append: null": lambda t: t.append(pa.table({"id": pa.array([None], pa.int64())})),
        "append: source": lambda t: t.append(5),
        "append: buffer": lambda t: t.append(rows, buffer_bytes=0),
        "append: id": lambda t: t.append(rows, transaction_id=""),
        "scan: column": lambda t: t.scan(columns=["x"]),
        "scan: where": lambda t: t.scan(where="x = 1"),
        "scan: syntax": lambda t: t.scan(where="id = = 1"),
        "scan: type": lambda t: t.scan(where="id = 'US'"),
        "scan: limit": lambda t: t.scan(limit=-1),
        "count: where": lambda t: t.count("x = 1"),
        "count_by: column": lambda t: t.count_by(["x"]),
        "count_by: columns": lambda t: t.count_by(5),
        "scan: columns": lambda t: t.scan(5),
        "merge: key": lambda t: t.merge(rows, ["id", "id"]),
        "merge: keys": lambda t: t.merge(rows, 5),
        "update: values": lambda t: t.update("x"),
        "update: overflow": lambda t: t.update({"id": f"id + {2**63 - 1}"}),
        "overwrite: mode and where": lambda t: t.overwrite(rows, "partitions", where="TRUE"),
        "add_column: name": lambda t: t.add_column(None, "int32"),
        "add_column: names": lambda t: t.add_column(["a", 5], "int32"),
        "add_column: zone": lambda t: t.add_column("ts", pa.timestamp("us", "Mars/Phobos")),
        "drop_column: name": lambda t: t.drop_column(5),
        "rename_column: name": lambda t: t.rename_column("id", 5),
        "evolve: entries": lambda t: t.evolve_partitioning(None),
        "expr: sql": lambda t: phalanx.expr(5, ["id"], "x"),
        "expr: columns": lambda t: phalanx.expr("col0", 5, "x"),
        "expr: column": lambda t: phalanx.expr("col0", [5], "x"),
    }


class TestMistakes:
    @pytest.mark.parametrize("mistake", mistakes().values(), ids=mistakes())
    def test_one_sentence_and_no_change(self, root, table, mistake):
        before = sorted(path.name for path in root.iterdir())
        with pytest.raises(phalanx.PhalanxError) as caught:
            mistake(table)
        text = str(caught.value)
        assert text
        assert "\n" not in text
        assert len(text) < 300
        assert "Traceback" not in text
        assert ".rs:" not in text
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__ or caught.value.__context__ is None
        assert sorted(path.name for path in root.iterdir()) == before
        assert phalanx.open(root).version == table.version == 2
        assert phalanx.open(root).scan().to_arrow().to_pylist() == [{"id": 1, "country": "US"}]


class TestDamage:
    def test_a_leaf_is_gone(self, root, table):
        (folder,) = root.glob("*_v1$*")
        shutil.rmtree(folder)
        with pytest.raises(phalanx.CorruptTable, match=r"the leaf .* has no version .*run check"):
            phalanx.open(root).scan().to_arrow()

    def test_the_manifest_is_damaged(self, root, table):
        for file in (root / "__manifest" / "_versions").iterdir():
            file.write_bytes(b"not a manifest")
        with pytest.raises(phalanx.CorruptTable, match="cannot read the manifest"):
            phalanx.open(root)

    def test_a_newer_format(self, root, table, monkeypatch):
        monkeypatch.setattr("phalanx.storage.head.FORMAT_VERSION", 0)
        with pytest.raises(phalanx.UnsupportedTable, match="upgrade Phalanx"):
            phalanx.open(root)


def actions():
    """Every way to read the rows of a leaf."""
    return {
        "scan": lambda t: t.scan().to_arrow(),
        "scan: where": lambda t: t.scan(where="id > 0").to_arrow(),
        "batches": lambda t: list(t.scan().to_batches(ordered=False)),
        "reader": lambda t: t.scan().to_reader().read_all(),
        "count": lambda t: t.count("id > 0"),
        "optimize": lambda t: t.optimize(),
        "rewrite": lambda t: t.rewrite(),
        "update": lambda t: t.update({"id": "id + 1"}),
        "delete": lambda t: t.delete("id > 1"),
        "merge": lambda t: t.merge([{"id": 1, "country": "US"}], ["id"]),
    }


class TestDamagedFiles:
    """A data file is gone, too short or not what was written."""

    @pytest.fixture
    def damaged(self, root, table, request):
        table.append([{"id": n, "country": "US"} for n in range(5)])
        table.append([{"id": 7, "country": "DE"}])
        table.evolve_partitioning([])
        (leaf,) = {file.parent.parent for file in root.glob("*_v1$*/data/*") if self._us(file)}
        (file, *_) = sorted(leaf.glob("data/*"))
        was = file.read_bytes()
        if request.param == "gone":
            file.unlink()
        else:
            file.write_bytes(was[: len(was) // 2] if request.param == "short" else b"x" * len(was))
        return phalanx.open(root), leaf

    @staticmethod
    def _us(file):
        return b"US" in file.read_bytes()

    @pytest.mark.parametrize("damaged", ["gone", "short", "garbage"], indirect=True)
    def test_the_leaf_is_named(self, damaged):
        table, leaf = damaged
        for name, action in actions().items():
            with pytest.raises(phalanx.CorruptTable, match=r"run check\(\)") as caught:
                action(table)
            assert f"the leaf {leaf} is gone or damaged" in str(caught.value), name
            assert ".rs:" not in str(caught.value), name

    @pytest.mark.parametrize("damaged", ["short"], indirect=True)
    def test_large_files_too(self, damaged, monkeypatch):
        """They are read as a stream that Lance pulls, and still one sentence comes out."""
        monkeypatch.setattr("phalanx.storage.compaction._SMALL_BYTES", 0)
        table, _ = damaged
        with pytest.raises(phalanx.CorruptTable, match=r"run check\(\)") as caught:
            table.optimize(sort_by=["id"])
        assert "Traceback" not in str(caught.value)

    @pytest.mark.parametrize("damaged", ["gone"], indirect=True)
    def test_a_bad_filter_is_the_filter_s_fault(self, damaged):
        table, _ = damaged
        with pytest.raises(phalanx.InvalidInput, match="cannot evaluate"):
            table.count("country = 'DE' AND id / 0 > 1")

    @pytest.mark.parametrize(
        "text",
        [
            "LanceError(IO): Generic S3 error: Error performing GET http://store/hush-hush in 5ms, "
            "after 3 retries - HTTP error: error sending request, /rust/x.rs:1:2",
            "LanceError(IO): Generic S3 error: error decoding response body, /rust/x.rs:1:2",
            "External error: Query Execution error: 'Not found: ', /rust/x.rs:1:2",
        ],
    )
    def test_what_passes_is_no_damage(self, text):
        with (
            pytest.raises(OSError, match="error"),
            evaluating(Location("s3://lake/t"), "s3://lake/t/leaf", None, None),
        ):
            raise OSError(text)

    def test_secrets_stay_secret(self):
        location = Location("s3://lake/t", {"secret_access_key": "hush-hush"})
        with (
            pytest.raises(phalanx.CorruptTable) as caught,
            evaluating(location, "s3://lake/t/leaf", None, None),
        ):
            raise OSError("LanceError(IO): Generic N/A error: Not found: t/hush-hush, /x.rs:1:2")
        assert "hush" not in str(caught.value)
