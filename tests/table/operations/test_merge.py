import dataclasses
import datetime as dt

import pyarrow as pa
import pytest

import phalanx
from phalanx import InvalidInput
from phalanx.storage.leaf import Leaf
from phalanx.storage.leaf_delta import LeafDelta
from phalanx.storage.manifest import ManifestVersion
from phalanx.storage.manifest_update import ManifestUpdate
from phalanx.storage.records import TransactionRecord
from phalanx.table.operations import merge as merging
from tests.table.rows import ROWS, SCHEMA, ids, row, rows


class TestMerge:
    def test_upsert(self, table):
        counts = table.merge([row(1, n=9), row(5, "c", 9)], ["id"])
        assert (counts.inserted, counts.updated, counts.deleted) == (1, 1, 0)
        assert counts["inserted"] == 1
        assert rows(table) == [row(1, n=9), *ROWS[1:], row(5, "c", 9)]

    def test_a_row_moves_to_the_partition_of_its_source(self, table):
        assert table.merge([row(1, "b", 9)], ["id"]).updated == 1
        assert rows(table)[0] == row(1, "b", 9)

    def test_delete_when_matched(self, table):
        counts = table.merge(
            [row(1), row(3), row(77)], ["id"], when_matched="delete", when_not_matched="ignore"
        )
        assert (counts.inserted, counts.updated, counts.deleted) == (0, 0, 2)
        assert ids(table) == [2, 4]

    def test_insert_only(self, table):
        counts = table.merge([row(1, n=9), row(5)], ["id"], when_matched="ignore")
        assert (counts.inserted, counts.updated, counts.deleted) == (1, 0, 0)
        assert rows(table) == [*ROWS, row(5)]

    def test_update_only(self, table):
        counts = table.merge([row(1, n=9), row(5)], ["id"], when_not_matched="ignore")
        assert (counts.inserted, counts.updated, counts.deleted) == (0, 1, 0)
        assert rows(table) == [row(1, n=9), *ROWS[1:]]

    def test_several_keys(self, table):
        counts = table.merge([row(1, "a", 9), row(1, "b", 9)], ["id", "part"])
        assert (counts.inserted, counts.updated) == (1, 1)
        assert [found["n"] for found in rows(table) if found["id"] == 1] == [9, 9]

    def test_null_keys_match_nothing(self, table):
        table.append([row(None, n=1)])
        counts = table.merge([row(None, n=2), row(None, n=3)], ["id"])
        assert (counts.inserted, counts.updated) == (2, 0)
        assert table.count("id IS NULL") == 3
        # Neither does a NULL partition value.
        assert table.merge([row(4, None, 9)], ["id", "part"]).inserted == 1

    def test_a_source_key_may_match_several_rows(self, table):
        table.append([row(1, "c")])
        counts = table.merge([row(1, n=9)], ["id"])
        assert (counts.inserted, counts.updated) == (0, 2)
        assert [found for found in rows(table) if found["id"] == 1] == [row(1, n=9)]

    def test_keys_of_all_rows(self, table):
        counts = table.merge([row(id, n=9) for id in (1, 2, 3, 4)], ["id"])
        assert counts.updated == 4
        assert rows(table) == [row(id, n=9) for id in (1, 2, 3, 4)]

    def test_nothing(self, table):
        assert table.merge(SCHEMA.empty_table(), ["id"]).inserted == 0
        assert rows(table) == ROWS

    def test_duplicate_source_keys_are_refused(self, table):
        with pytest.raises(InvalidInput, match="several source rows have the same id"):
            table.merge([row(7), row(7)], ["id"])
        assert (table.version, rows(table)) == (2, ROWS)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"on": 5}, "takes the key columns"),
            ({"on": []}, "takes the key columns"),
            ({"on": ["nope"]}, "unknown column 'nope'"),
            ({"on": ["id"], "when_matched": "x"}, "when_matched is"),
            ({"on": ["id"], "when_not_matched": "x"}, "when_not_matched is"),
        ],
    )
    def test_options_that_make_no_sense(self, table, options, message):
        with pytest.raises(InvalidInput, match=message):
            table.merge([row(1)], **options)
        assert table.version == 2


class TestKeys:
    def test_a_key_may_be_called_number(self, root):
        table = phalanx.create(root, pa.schema([("number", pa.int64()), ("x", pa.int64())]))
        table.append([{"number": 1, "x": 1}])
        assert table.merge([{"number": 1, "x": 2}], on=["number"]).updated == 1

    @pytest.mark.parametrize("key", ['a"b', "a'b", "a b", "select", "ü"])
    def test_or_almost_anything_else(self, root, key):
        table = phalanx.create(root, pa.schema([(key, pa.int64()), ("x", pa.int64())]))
        table.append([{key: 1, "x": 1}, {key: 2, "x": 1}])
        counts = table.merge([{key: 2, "x": 2}, {key: 3, "x": 2}], on=[key])
        assert (counts.updated, counts.inserted) == (1, 1)
        found = table.scan().to_arrow()
        assert sorted(zip(*(column.to_pylist() for column in found.columns), strict=True)) == [
            (1, 1), (2, 2), (3, 2),
        ]  # fmt: skip

    def test_floats_are_no_keys(self, root):
        table = phalanx.create(root, pa.schema([("x", pa.float64())]))
        with pytest.raises(InvalidInput, match="'x' of type double cannot be a key"):
            table.merge([{"x": -0.0}], on=["x"])


class TestRefused:
    def test_a_merge_that_is_refused_takes_nothing_out(self, root):
        schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
        by = phalanx.expr("cast(col0 as int)", ["name"], name="n")
        table = phalanx.create(root, schema, [by])
        table.append([{"id": i, "name": str(i)} for i in range(4)])
        with table.transaction() as tx, pytest.raises(InvalidInput, match="Cannot cast"):
            tx.merge([{"id": 1, "name": "bad"}, {"id": 2, "name": "0"}], on=["id"])
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [0, 1, 2, 3]


class TestMissingColumns:
    """Columns that the source lacks keep their values; in new rows they are NULL or a default."""

    SCHEMA = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("part", pa.string()),
            ("amount", pa.float64()),
            ("tags", pa.list_(pa.string())),
            ("place", pa.struct([("x", pa.int32()), ("y", pa.int32())])),
        ]
    )
    ROWS = (
        {"id": 1, "part": "a", "amount": 1.0, "tags": ["x"], "place": {"x": 1, "y": None}},
        {"id": 2, "part": "a", "amount": 2.0, "tags": [], "place": None},
        {"id": 3, "part": "b", "amount": None, "tags": None, "place": {"x": 3, "y": 4}},
        {"id": 4, "part": None, "amount": 4.0, "tags": ["y", None], "place": None},
    )

    @pytest.fixture(params=["strong", "weak"])
    def wide(self, root, request):
        table = phalanx.create(root, self.SCHEMA, ["part"], transactions=request.param)
        return table.append(list(self.ROWS))

    @staticmethod
    def rows(table):
        return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])

    def changed(self, **changes):
        """The rows with some values changed, by id."""
        rows = {row["id"]: dict(row) for row in self.ROWS}
        for id, values in changes.items():
            rows.setdefault(int(id[1:]), dict.fromkeys(self.SCHEMA.names)).update(values)
        return list(rows.values())

    def test_one_column(self, wide):
        counts = wide.merge([{"id": 1, "amount": 9.0}, {"id": 4, "amount": None}], on=["id"])
        assert (counts.updated, counts.inserted) == (2, 0)
        assert self.rows(wide) == self.changed(_1={"amount": 9.0}, _4={"amount": None})
        assert wide.check().ok

    @pytest.mark.parametrize("kind", ["table", "frame", "stream"])
    def test_whatever_holds_the_rows(self, wide, kind):
        source = pa.table({"amount": [9.0, 8.0], "id": [3, 7]})
        data = {"table": source, "stream": source.to_reader(), "frame": source.to_pandas()}[kind]
        assert wide.merge(data, on=["id"]).inserted == 1
        assert self.rows(wide) == self.changed(_3={"amount": 9.0}, _7={"id": 7, "amount": 8.0})

    def test_rows_with_different_columns(self, wide):
        source = [{"id": 1, "amount": 9.0}, {"id": 2, "part": "z"}, {"id": 8, "tags": ["n"]}]
        wide.merge(source, on=["id"])
        assert self.rows(wide) == self.changed(
            _1={"amount": 9.0}, _2={"part": "z"}, _8={"id": 8, "tags": ["n"]}
        )
        assert wide.count("part = 'z'") == 1

    def test_every_type_is_kept_or_given(self, wide):
        wide.merge([{"id": 1, "place": {"x": 7, "y": 7}}, {"id": 3, "tags": ["t"]}], on=["id"])
        assert self.rows(wide) == self.changed(_1={"place": {"x": 7, "y": 7}}, _3={"tags": ["t"]})

    def test_null_that_is_given_is_null(self, wide):
        wide.merge([{"id": 2, "amount": None, "part": None}], on=["id"])
        assert self.rows(wide) == self.changed(_2={"amount": None, "part": None})

    def test_a_key_that_is_missing(self, wide):
        with pytest.raises(InvalidInput, match="no value for 'id', which is a key"):
            wide.merge([{"amount": 1.0}], on=["id"])
        with pytest.raises(InvalidInput, match="no value for 'id', which is a key"):
            wide.merge([{"id": 1}, {"amount": 1.0}], on=["id"])

    def test_delete_by_key_alone(self, wide):
        counts = wide.merge(
            [{"id": 1}, {"id": 9}], ["id"], when_matched="delete", when_not_matched="ignore"
        )
        assert counts.deleted == 1
        assert [row["id"] for row in self.rows(wide)] == [2, 3, 4]

    def test_a_default_for_new_rows(self, root):
        table = phalanx.create(root, pa.schema([("id", pa.int64()), ("a", pa.int64())]))
        table.append([{"id": 1, "a": 1}])
        table.add_column("b", pa.int64(), 5, nullable=False)
        table.append([{"id": 2, "a": 2, "b": 2}])
        table.merge([{"id": 1, "a": 7}, {"id": 2, "a": 8}, {"id": 3}], on=["id"])
        rows = {(row["id"], row["a"], row["b"]) for row in table.scan().to_arrow().to_pylist()}
        assert rows == {(1, 7, 5), (2, 8, 2), (3, None, 5)}

    def test_a_new_row_without_what_it_needs_is_refused(self, root):
        schema = pa.schema([("id", pa.int64()), pa.field("need", pa.string(), nullable=False)])
        table = phalanx.create(root, schema, ["bucket(2, id)"])
        table.append([{"id": 1, "need": "x"}, {"id": 2, "need": "y"}])
        table.merge([{"id": 1}], on=["id"])
        before = sorted(path for path in root.rglob("*") if path.is_file())
        for source in ([{"id": 1}, {"id": 9}], [{"id": 1, "need": "z"}, {"id": 9}]):
            with pytest.raises(InvalidInput, match=r"'need' .*must not be NULL"):
                table.merge(source, on=["id"])
        assert sorted(path for path in root.rglob("*") if path.is_file()) == before
        assert table.count("need = 'x'") == 1

    def test_a_key_that_several_rows_have(self, wide):
        """Each of them keeps its own values."""
        wide.append([{"id": 1, "part": "c", "amount": 5.0}])
        assert wide.merge([{"id": 1, "tags": ["new"]}], on=["id"]).updated == 2
        ones = [row for row in self.rows(wide) if row["id"] == 1]
        assert {(row["part"], row["amount"]) for row in ones} == {("a", 1.0), ("c", 5.0)}
        assert [row["tags"] for row in ones] == [["new"], ["new"]]

    @pytest.mark.parametrize("wide", ["strong"], indirect=True)
    def test_beside_others(self, wide):
        """What others have changed meanwhile is kept."""
        late = phalanx.open(wide.uri).transaction()
        late.merge([{"id": 1, "amount": 9.0}], on=["id"])
        wide.update({"tags": "NULL"}, "id = 1")
        late.commit()
        assert self.rows(phalanx.open(wide.uri)) == self.changed(_1={"amount": 9.0, "tags": None})

    def test_after_evolution(self, root):
        """Rows of earlier schemas and specs."""
        table = phalanx.create(root, self.SCHEMA, ["part"]).append(list(self.ROWS))
        table.evolve_partitioning(["bucket(3, id)"])
        table.append([{"id": 5, "part": "a", "amount": 5.0}])
        table.rename_column("amount", "sum")
        table.add_column("more", pa.int64(), 1)
        table.merge([{"id": 1, "more": 2}, {"id": 5, "sum": 6.0}, {"id": 4, "part": "q"}], ["id"])
        rows = {r["id"]: (r["part"], r["sum"], r["more"]) for r in self.rows(table)}
        assert rows == {
            1: ("a", 1.0, 2),
            2: ("a", 2.0, 1),
            3: ("b", None, 1),
            4: ("q", 4.0, 1),
            5: ("a", 6.0, 1),
        }


class TestChoosing:
    """Which leaves are read, shown by the number of those that are opened."""

    @pytest.fixture
    def many(self, root):
        schema = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("k", pa.string())])
        table = phalanx.create(root, schema, ["days(day)", "k"])
        days = [dt.date(2024, 1, 1) + dt.timedelta(n) for n in range(20)]
        rows = [{"id": n, "day": day, "k": k} for n, day in enumerate(days) for k in "abc"]
        return table.append([{**row, "id": n} for n, row in enumerate(rows)])

    @pytest.fixture
    def read(self, monkeypatch):
        folders = []
        real = Leaf.scan

        def scan(self, *arguments, **options):
            folders.append(self.folder)
            return real(self, *arguments, **options)

        monkeypatch.setattr(Leaf, "scan", scan)
        return folders

    def test_by_all_partition_columns(self, many, read):
        source = many.scan(where="id IN (0, 31, 59)").to_arrow()
        read.clear()
        assert many.merge(source, on=["id", "day", "k"]).updated == 3
        assert len(set(read)) == 3

    def test_by_one_of_them(self, many, read):
        source = many.scan(where="id IN (0, 31)").to_arrow()
        read.clear()
        many.merge(source, on=["id", "day"])
        assert len(set(read)) == 6

    def test_more_keys_than_are_pruned_by_value(self, many, read, monkeypatch):
        monkeypatch.setattr(merging, "_KEYS_BY_VALUE", 1)
        monkeypatch.setattr(merging, "_FILTERED_KEYS", 0)
        source = many.scan(where="id IN (0, 31, 59)").to_arrow()
        read.clear()
        assert many.merge(source, on=["id", "day", "k"]).updated == 3
        assert len(set(read)) == 3
        assert many.count() == 60

    @pytest.mark.parametrize("window", [1, 7, 1000])
    def test_many_leaves_in_several_goes(self, many, monkeypatch, window):
        monkeypatch.setattr(merging, "_PROBE_ROWS", window)
        monkeypatch.setattr(merging, "_FILTERED_KEYS", 0)
        source = [{"id": n, "k": "z"} for n in (*range(0, 60, 7), 99)]
        counts = many.merge(source, on=["id"])
        assert (counts.updated, counts.inserted) == (9, 1)
        assert many.count("k = 'z'") == 10
        assert many.count() == 61

    @pytest.mark.parametrize("filtered", [0, 1000])
    def test_leaves_that_hold_none_of_the_keys(self, many, monkeypatch, filtered):
        monkeypatch.setattr(merging, "_FILTERED_KEYS", filtered)
        day = dt.date(2024, 1, 1)
        counts = many.merge([{"id": 77, "day": day, "k": "a"}], on=["id", "day"])
        assert (counts.updated, counts.inserted) == (0, 1)
        assert many.count() == 61


class TestOddSources:
    def test_rows_are_treated_alike_whatever_stands_beside_them(self, root):
        """A whole row replaces the rows with its key, one that lacks columns changes each."""
        for beside in ([], [{"id": 7}]):
            table = phalanx.create(
                root / str(len(beside)),
                pa.schema([("id", pa.int64()), ("v", pa.int64()), ("w", pa.int64())]),
            )
            table.append([{"id": 1, "v": 1, "w": 1}, {"id": 1, "v": 2, "w": 2}])
            table.merge([{"id": 1, "v": 9, "w": 9}, *beside], on=["id"])
            assert table.count("id = 1") == 1
            table.append([{"id": 2, "v": 1, "w": 1}, {"id": 2, "v": 2, "w": 2}])
            table.merge([{"id": 2, "v": 9}, *beside], on=["id"])
            rows = table.scan(where="id = 2").to_arrow().to_pylist()
            assert sorted((row["v"], row["w"]) for row in rows) == [(9, 1), (9, 2)]

    def test_null_where_there_must_be_none(self, root):
        schema = pa.schema(
            [("id", pa.int64()), pa.field("v", pa.int64(), nullable=False), ("w", pa.int64())]
        )
        table = phalanx.create(root, schema)
        table.append([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
        with pytest.raises(InvalidInput, match="'v' holds NULL, and it must not be NULL"):
            table.merge([{"id": 1, "v": None}, {"id": 2, "w": 3}], on=["id"])
        table.merge([{"id": 1, "v": 5}, {"id": 2, "w": 3}], on=["id"])
        rows = table.scan().to_arrow().to_pylist()
        assert sorted(map(repr, rows)) == sorted(
            map(repr, [{"id": 1, "v": 5, "w": None}, {"id": 2, "v": 2, "w": 3}])
        )

    @pytest.mark.parametrize("by_value", [1, 10_000])
    def test_dictionary_keys(self, root, monkeypatch, by_value):
        monkeypatch.setattr(merging, "_KEYS_BY_VALUE", by_value)
        monkeypatch.setattr(merging, "_FILTERED_KEYS", 0)
        schema = pa.schema([("k", pa.dictionary(pa.int32(), pa.string())), ("v", pa.int64())])
        table = phalanx.create(root, schema)
        table.append([{"k": f"k{n}", "v": n} for n in range(20)])
        counts = table.merge([{"k": f"k{n}", "v": -n} for n in range(15, 25)], on=["k"])
        assert (counts.updated, counts.inserted) == (5, 5)

    @pytest.mark.parametrize("type", [pa.uuid(), pa.duration("s")])
    def test_keys_that_cannot_be_joined(self, root, type):
        table = phalanx.create(root, pa.schema([("k", type), ("v", pa.int64())]))
        with pytest.raises(InvalidInput, match=r"column 'k' of type .* cannot be a key of a merge"):
            table.merge(table.scan().to_arrow(), on=["k"])

    def test_no_rows_at_all(self, table):
        before = table.count()
        counts = table.merge([], on=["id"])
        assert (counts.inserted, counts.updated, counts.deleted) == (0, 0, 0)
        assert table.count() == before

    def test_two_leaves_with_the_same_values(self, root):
        """Another client may have made the same partition twice: both are looked at."""
        schema = pa.schema([("id", pa.int64()), ("k", pa.string())])
        table = phalanx.create(root, schema, ["k"])
        table.append([{"id": 1, "k": "a"}, {"id": 5, "k": "b"}])
        (row,) = [leaf for leaf in table._snapshot.leaves.rows() if leaf.keys == ("a",)]
        leaf = Leaf(
            table._snapshot.location, "00000000_v1$twin$dataset", table._snapshot.head.schema
        )
        written = leaf.create().write(pa.table({"id": [2], "k": ["a"]}, schema))
        version = leaf.commit(None, LeafDelta(added=(written,)))
        manifest = ManifestVersion(table._snapshot.location)
        head = manifest.head().after(dt.datetime.now(dt.UTC), "twin")
        update = ManifestUpdate(head.specs)
        twin = dataclasses.replace(
            row, object_id="v1$twin$dataset", location=leaf.folder, read_version=version
        )
        update.put_namespaces(twin, head.spec)
        update.put_leaf(twin, head.spec, head.sequence)
        update.put_head(head)
        update.put_transaction(TransactionRecord.of(head, "append", rows_added=1))
        manifest.swap(update)
        table.refresh()
        assert ids(table) == [1, 2, 5]
        source = [{"id": n, "k": "a"} for n in (1, 2)]
        assert table.merge(source, on=["k", "id"]).updated == 2
        assert ids(table) == [1, 2, 5]
