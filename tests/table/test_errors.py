"""What users see when something is wrong: one sentence, of one family."""

import inspect
import shutil

import pyarrow as pa
import pytest

import phalanx
from phalanx import errors

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
