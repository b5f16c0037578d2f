"""Leaves that are not read because the bounds of their columns rule out every row."""

import datetime as dt

import pyarrow as pa
import pytest

import phalanx
from phalanx.storage.manifest import ManifestVersion
from phalanx.table import skipping

SCHEMA = pa.schema(
    [("id", pa.int64()), ("part", pa.string()), ("x", pa.float32()), ("s", pa.string())]
)


def rows(start, part):
    numbers = range(start, start + 10)
    return [{"id": n, "part": part, "x": n / 2, "s": f"s{n}"} for n in numbers]


@pytest.fixture
def table(root):
    table = phalanx.create(root, SCHEMA, ["part"])
    return table.append(rows(0, "a") + rows(10, "b") + rows(20, "c"))


def read(table, where):
    """How many partitions are read, of those that partition values leave."""
    plan = table.scan(where=where).plan()
    return len(plan.to_read), plan.selected


def ids(table, where):
    return sorted(table.scan("id", where).to_arrow()["id"].to_pylist())


def test_a_filter_on_a_column_that_is_no_partition_field(table):
    assert read(table, "id = 13") == (1, 3)
    assert read(table, "id BETWEEN 8 AND 11 AND x >= 5") == (1, 3)
    assert read(table, "id < 5 OR s = 's27'") == (2, 3)
    assert read(table, "id < 5 AND part > 'a'") == (0, 2)
    assert read(table, "s IS NULL") == (0, 3)
    assert read(table, "id % 10 = 3") == (3, 3)
    assert ids(table, "id IN (3, 29)") == [3, 29]
    assert table.count("id > 12") == 17
    assert table.count("id > 100") == 0


def test_the_plan_says_so(table):
    told = table.scan(where="id = 13").explain()
    assert "skipped     2 partitions, by the bounds of id" in told
    assert "skipped" not in table.scan(where="id % 2 = 0").explain()


def test_changes_widen_the_bounds(table):
    table.append(rows(100, "a"))
    assert read(table, "id = 104") == (1, 3)
    table.update({"id": "id + 1000"}, "id = 13")
    assert ids(table, "id > 1000") == [1013]
    table.merge([{"id": 25, "part": "c", "x": None, "s": "new"}], on=["id"])
    assert ids(table, "s = 'new'") == [25]
    assert ids(table, "x IS NULL") == [25]
    table.delete("id = 1013")
    assert read(table, "id = 5000") == (0, 3)
    table.optimize()
    assert ids(table, "id >= 104") == list(range(104, 110))


def test_what_a_transaction_has_changed_itself(table):
    with table.transaction() as changes:
        changes.append(rows(500, "b"))
        assert changes.scan("id", "id >= 508").to_arrow()["id"].to_pylist() == [508, 509]
        changes.update({"id": "id + 1000"}, "id = 21")
        assert changes.count("id = 1021") == 1
    assert table.count("id = 1021") == 1


def test_a_row_that_another_has_added_where_nothing_was_read_is_a_conflict(table):
    other = phalanx.open(table.uri)
    with pytest.raises(phalanx.ConflictError), table.transaction() as changes:  # noqa: PT012
        assert changes.count("id = 77") == 0
        other.append([{"id": 77, "part": "a"}])
        changes.append([{"id": 77, "part": "b"}])
    assert table.refresh().count("id = 77") == 1


def test_earlier_versions(table):
    version = table.version
    table.append(rows(100, "a"))
    assert ids(phalanx.open(table.uri, version), "id >= 25") == list(range(25, 30))
    assert phalanx.open(table.uri, version).count("id = 104") == 0
    table.rollback(version)
    assert table.count("id = 104") == 0
    assert read(table, "id = 13") == (1, 3)


def test_columns_that_change(table):
    table.rename_column("s", "name")
    assert read(table, "name > 's3'") == (1, 3)
    table.change_type("x", pa.float64())
    assert read(table, "x > 12") == (1, 3)
    assert ids(table, "x > 14") == [29]
    table.add_column("n", pa.int32(), default=7)
    assert table.count("n = 7") == 30
    table.append([{"id": 40, "part": "d", "n": 1}])
    assert table.count("n = 7") == 30
    assert ids(table, "n = 1") == [40]
    table.drop_column("n")
    table.add_column("n", pa.int32())
    assert table.count("n IS NULL") == 31


def test_dates_that_have_become_times(root):
    schema = pa.schema([("id", pa.int64()), ("d", pa.date32())])
    table = phalanx.create(root, schema, ["id"])
    days = [dt.date(2024, 1, day) for day in (1, 2, 3)]
    table.append([{"id": number, "d": day} for number, day in enumerate(days)])
    assert read(table, "d > DATE '2024-01-02'") == (1, 3)
    table.change_type("d", pa.timestamp("us"))
    assert ids(table, "d = TIMESTAMP '2024-01-02T00:00:00'") == [1]
    table.append([{"id": 1, "d": dt.datetime(2024, 5, 5, 12)}])
    assert ids(table, "d > TIMESTAMP '2024-01-03T00:00:00'") == [1]


def test_dates_that_become_times_in_a_transaction(root):
    """It sees the same statistics through another schema than the snapshot that it is based on."""
    table = phalanx.create(root, pa.schema([("p", pa.int32()), ("d", pa.date32())]), ["p"])
    table.append([{"p": 1, "d": dt.date(2024, 1, 1)}])
    assert table.count("d > DATE '2024-01-01'") == 0
    with table.transaction() as changes:
        changes.change_type("d", pa.timestamp("us"))
        assert changes.count("d = TIMESTAMP '2024-01-01T00:00:00'") == 1


@pytest.mark.parametrize("one_by_one", [False, True])
def test_values_without_an_upper_bound(root, one_by_one):
    """Nothing is greater than the longest that is kept of these, so their bounds are not known."""
    schema = pa.schema([("p", pa.int32()), ("s", pa.string()), ("b", pa.binary())])
    table = phalanx.create(root, schema, ["p"])
    rows = [
        {"p": 1, "s": "a", "b": b"a"},
        {"p": 1, "s": "\U0010ffff" * 65, "b": b"\xff" * 65},
        {"p": 1, "s": "m", "b": b"m"},
    ]
    for part in [rows[:2], rows[2:]] if not one_by_one else [[row] for row in rows]:
        table.append(part)
    assert table.count("s = 'a'") == 1
    assert table.count("s > 'n'") == 1
    assert table.count("b > X'70'") == 1


def test_null_among_the_values_of_a_dictionary(root):
    kind = pa.dictionary(pa.int32(), pa.string())
    table = phalanx.create(root, pa.schema([("p", pa.int32()), ("s", kind)]), ["p"])
    values = pa.array(["a", None]).dictionary_encode(null_encoding="encode")
    table.append(pa.table({"p": pa.array([1, 1], pa.int32()), "s": values}))
    assert table.count("s IS NULL") == 1


def test_a_weak_table_is_read(root):
    table = phalanx.create(root, SCHEMA, ["part"], transactions="weak")
    table.append(rows(0, "a") + rows(10, "b"))
    assert read(table, "id = 3") == (2, 2)
    assert ids(table, "id = 3") == [3]


def test_where_statistics_cannot_be_read(table, monkeypatch):
    def gone(self, columns, **which):
        raise phalanx.errors.CorruptTable("a file is gone")

    skipping._recent.clear()
    plan = table.scan(where="id = 13").plan()
    with monkeypatch.context() as patch:
        patch.setattr(ManifestVersion, "leaves", gone)
        assert len(plan.to_read) == 3


def test_statistics_of_another_version_are_not_used(table, monkeypatch):
    """The rows of the manifest that are read may be newer or older than the snapshot."""
    real = ManifestVersion.leaves

    def older(self, columns, **which):
        found = real(self, columns, **which)
        if "read_version" in found.schema.names and "column_stats" in found.schema.names:
            place = found.schema.get_field_index("read_version")
            found = found.set_column(place, "read_version", pa.array([5] * len(found), pa.uint64()))
        return found

    monkeypatch.setattr(ManifestVersion, "leaves", older)
    skipping._recent.clear()
    assert read(table, "id = 13") == (3, 3)


def test_very_many_leaves_are_not_looked_at(table, monkeypatch):
    monkeypatch.setattr(skipping, "_MOST_LEAVES", 2)
    assert read(table, "id = 13") == (3, 3)
    assert read(table, "id = 13 AND part <> 'c'") == (1, 2)
