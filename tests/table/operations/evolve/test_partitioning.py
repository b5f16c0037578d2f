"""Partition evolution: rows that are there stay, rows that come are cut by the newest spec."""

import contextlib
import datetime as dt
import logging
import threading

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx import ConflictError, InvalidInput
from phalanx.storage.location import Location
from phalanx.storage.manifest import ManifestVersion
from phalanx.transaction.snapshot import Snapshot

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("country", pa.string())])
DAY_1, DAY_2, LAST_YEAR = dt.date(2025, 12, 10), dt.date(2025, 12, 11), dt.date(2024, 12, 10)


def row(id, day=DAY_1, country="US"):
    return {"id": id, "day": day, "country": country}


OLD = [row(1), row(2, DAY_2), row(3, country="CA"), row(4, None, None)]
NEW = [row(5), row(6, DAY_2, "CA"), row(7, LAST_YEAR), row(8, None, None)]


def evolved(root, old=("day",), new=("year(day)", "country"), mode="strong"):
    """Rows under two specs, none of them the same."""
    table = phalanx.create(root, SCHEMA, list(old), transactions=mode)
    table.append(OLD)
    table.evolve_partitioning(list(new))
    return table.append(NEW)


def ids(table, where=None):
    return sorted(table.scan(["id"], where).to_arrow()["id"].to_pylist())


def specs(table):
    return table.partitions()["spec"].to_pylist()


class TestNewSpec:
    def test_one_snapshot_and_no_row_moves(self, root):
        table = phalanx.create(root, SCHEMA, ["day"]).append(OLD)
        before = table.partitions().select(["uri", "version", "rows"]).to_pylist()
        table.evolve_partitioning(["year(day)", "country"])
        assert table.version == 3
        assert table.spec.id == 2
        assert [spec.id for spec in table.specs] == [1, 2]
        assert table.partitions().select(["uri", "version", "rows"]).to_pylist() == before
        last = table.snapshots().to_pylist()[-1]
        assert (last["operation"], last["rows_added"]) == ("evolve partitioning", 0)

    @pytest.mark.parametrize("mode", ["strong", "weak"])
    def test_new_rows_go_to_the_newest(self, root, mode):
        table = evolved(root, mode=mode)
        assert specs(table) == [1, 1, 1, 2, 2, 2, 2]
        assert ids(table) == list(range(1, 9))
        assert ids(phalanx.open(root), "country = 'CA'") == [3, 6]

    def test_in_the_manifest(self, root):
        table = evolved(root)
        manifest = lance.dataset(f"{table.uri}/__manifest")
        assert manifest.metadata["partition_spec_v2"] == table.spec.dumps()
        assert manifest.schema.field("partition_field_country").type == pa.string()
        found = manifest.to_table(filter="object_id = 'v2'").to_pylist()
        assert [r["object_type"] for r in found] == ["namespace"]
        assert table.check().ok

    def test_time_travel(self, root):
        evolved(root)
        assert phalanx.open(root, version=2).spec.id == 1
        assert ids(phalanx.open(root, version=2)) == [1, 2, 3, 4]
        assert phalanx.open(root, version=3).spec.id == 2

    def test_no_fields_and_back(self, root):
        table = evolved(root, new=())
        assert specs(table) == [1, 1, 1, 2]
        table.evolve_partitioning(["day"])
        assert table.spec.id == 3
        assert table.spec.fields == table.specs[0].fields
        table.append([row(9)])
        assert specs(table) == [1, 1, 1, 2, 3]
        assert ids(table, "day = DATE '2025-12-10'") == [1, 3, 5, 9]
        assert table.scan(where="day = DATE '2025-12-11'").plan().selected == 2

    def test_from_no_fields(self, root):
        table = evolved(root, old=(), new=("country",))
        assert ids(table, "country = 'CA'") == [3, 6]
        assert table.check().ok

    def test_reordered_fields(self, root):
        table = evolved(root, old=("day", "country"), new=("country", "day"))
        assert [f.field_id for f in table.spec.fields] == ["country", "day"]
        assert table.count("country = 'US' AND day = DATE '2025-12-10'") == 2
        table.append([row(9), row(10, DAY_2, "CA")])
        assert len(specs(table)) == 8, "both rows belong to leaves that are there"
        assert table.check().ok

    def test_other_buckets(self, root):
        table = evolved(root, old=("bucket(4, id)",), new=("bucket(8, id)",))
        assert [s.fields[0].field_id for s in table.specs] == ["id_bucket", "id_bucket_2"]
        for id in range(1, 9):
            assert ids(table, f"id = {id}") == [id]
            assert table.scan(where=f"id = {id}").plan().selected <= 2

    def test_custom_expression(self, root):
        table = evolved(root, new=(phalanx.expr("upper(col0)", ["country"], name="big"),))
        assert table.partitions()["big"].to_pylist() == [None] * 4 + ["CA", "US"]
        assert ids(table, "country = 'CA'") == [3, 6]


class TestFieldIds:
    def test_the_same_field_keeps_its_id(self, root):
        table = evolved(root, old=("day", "country"), new=("country", "bucket(4, id)"))
        assert [f.field_id for f in table.spec.fields] == ["country", "id_bucket"]
        names = lance.dataset(f"{table.uri}/__manifest").schema.names
        assert len([n for n in names if n.startswith("partition_field_")]) == 3

    def test_an_id_means_one_thing_for_ever(self, root):
        named = phalanx.expr("upper(col0)", ["country"], name="word")
        table = phalanx.create(root, SCHEMA, [named])
        table.evolve_partitioning(["day"])
        with pytest.raises(InvalidInput, match="never reused"):
            table.evolve_partitioning([phalanx.expr("lower(col0)", ["country"], name="word")])
        table.evolve_partitioning([named])
        assert table.spec.fields == table.specs[0].fields

    def test_not_given_back_by_a_rollback(self, root):
        table = evolved(root)
        table.rollback(2)
        assert table.spec.id == 1
        assert ids(table) == [1, 2, 3, 4]
        table.append([row(9)])
        table.evolve_partitioning(["truncate(1, country)"])
        assert table.spec.id == 3
        table.append([row(10)])
        assert ids(table) == [1, 2, 3, 4, 9, 10]
        assert table.check().ok


class TestNothingToDo:
    def test_the_same_spec(self, root, caplog):
        table = evolved(root)
        with caplog.at_level(logging.WARNING, "phalanx"):
            table.evolve_partitioning(["year(day)", "country"])
        assert "already" in caplog.text
        assert table.version == 4
        assert phalanx.open(root).version == 4

    def test_what_counts_is_the_newest(self, root):
        stale = phalanx.create(root, SCHEMA, ["day"])
        phalanx.open(root).evolve_partitioning(["country"])
        stale.evolve_partitioning(["day"])
        assert phalanx.open(root).spec.fields == stale.specs[0].fields
        assert phalanx.open(root).version == 3

    @pytest.mark.parametrize("entries", [["none"], ["day", "day"], ["hour(country)"], [7]])
    def test_refused(self, root, entries):
        table = phalanx.create(root, SCHEMA, ["day"])
        with pytest.raises(InvalidInput):
            table.evolve_partitioning(entries)
        assert phalanx.open(root).version == 1


@pytest.fixture(scope="module")
def read_only(tmp_path_factory):
    return evolved(tmp_path_factory.mktemp("reading"))


class TestReading:
    @pytest.fixture
    def table(self, read_only):
        return read_only

    def test_each_spec_prunes_by_its_own_rules(self, table):
        plan = table.scan(where="day = DATE '2025-12-10' AND country = 'US'").plan()
        assert [(leaf.row.spec_id, leaf.values, leaf.residual) for leaf in plan.leaves] == [
            (1, {"day": DAY_1}, "country = 'US'"),
            (2, {"day_year": 2025, "country": "US"}, "day = DATE '2025-12-10'"),
        ]
        assert ids(table, "day = DATE '2025-12-10' AND country = 'US'") == [1, 5]

    def test_null(self, table):
        assert ids(table, "day IS NULL") == [4, 8]
        assert table.scan(where="day IS NULL").plan().selected == 2
        assert ids(table, "country <> 'US'") == [3, 6]

    def test_explain(self, table):
        text = table.scan(where="country = 'CA'").explain()
        assert "day=2025-12-10" in text
        assert "day_year=2025 / country=CA" in text

    def test_count_by(self, table):
        by_country = table.count_by(["country"]).to_pylist()
        assert {r["country"]: r["count"] for r in by_country} == {"US": 4, "CA": 2, None: 2}
        by_field = table.count_by(["day_year"]).to_pylist()
        assert {r["day_year"]: r["count"] for r in by_field} == {2025: 5, 2024: 1, None: 2}

    def test_count_by_values_that_all_specs_have(self, root):
        table = evolved(root, old=("country",), new=("country", "day"))
        counted = table.count_by(["country"], "country IS NOT NULL").to_pylist()
        assert {r["country"]: r["count"] for r in counted} == {"US": 4, "CA": 2}

    def test_partitions(self, table):
        found = table.partitions()
        assert found["day"].to_pylist() == [None, DAY_1, DAY_2, None, None, None, None]
        assert found["day_year"].to_pylist()[3:] == [None, 2024, 2025, 2025]
        assert found["country"].to_pylist()[3:] == [None, "US", "CA", "US"]


class TestChanging:
    @pytest.mark.parametrize("mode", ["strong", "weak"])
    def test_delete(self, root, mode):
        table = evolved(root, mode=mode)
        assert table.delete("day = DATE '2025-12-10'") == 3
        assert ids(table) == [2, 4, 6, 7, 8]
        assert table.delete("country IS NULL") == 2
        assert ids(phalanx.open(root)) == [2, 6, 7]

    def test_delete_decided_by_values_opens_no_leaf(self, root):
        table = evolved(root, old=("country",), new=("country", "day"))
        table.delete("country = 'US'")
        assert ids(table) == [3, 4, 6, 8]
        assert specs(table) == [1, 1, 2, 2]

    def test_update_and_merge_write_under_the_newest(self, root):
        table = evolved(root)
        table.update({"country": "'DE'"}, "id IN (1, 7)")
        table.merge([row(2, DAY_2, "FR"), row(9)], ["id"])
        assert ids(table, "country = 'DE'") == [1, 7]
        assert ids(table) == list(range(1, 10))
        plan = table.scan(where="country IN ('DE', 'FR')").plan()
        assert {leaf.row.spec_id for leaf in plan.leaves if leaf.values.get("country")} == {2}

    def test_overwrite_partitions_of_the_newest(self, root):
        table = evolved(root)
        table.overwrite([row(9)], "partitions")
        assert ids(table) == [1, 2, 3, 4, 6, 7, 8, 9]

    def test_in_a_transaction_with_rows(self, root):
        table = phalanx.create(root, SCHEMA, ["day"]).append(OLD)
        with table.transaction() as tx:
            tx.append([row(9)])
            tx.evolve_partitioning(["country"])
            tx.append(NEW)
            assert tx.count("country = 'CA'") == 2
            tx.delete("id = 5")
        assert table.version == 3
        assert specs(table) == [1, 1, 1, 2, 2, 2]
        assert ids(table) == [1, 2, 3, 4, 6, 7, 8, 9]
        assert table.check().ok

    def test_given_up_with_the_transaction(self, root):
        table = phalanx.create(root, SCHEMA, ["day"]).append(OLD)
        with contextlib.suppress(ZeroDivisionError), table.transaction() as tx:
            tx.evolve_partitioning(["country"])
            1 / 0  # noqa: B018
        assert phalanx.open(root).spec.id == 1

    def test_transaction_id(self, root):
        table = phalanx.create(root, SCHEMA, ["day"])
        for _ in range(2):
            phalanx.open(root).evolve_partitioning(["country"], transaction_id="once")
        assert table.refresh().version == 2


class TestBeside:
    """Another writer at the same time: one of the two orders, never a mix."""

    @pytest.mark.parametrize("mode", ["strong", "weak"])
    def test_append_that_was_written_for_the_old_spec(self, root, mode):
        table = phalanx.create(root, SCHEMA, ["day"], transactions=mode)
        with table.transaction() as tx:
            tx.append(OLD)
            phalanx.open(root).evolve_partitioning(["year(day)", "country"])
        assert phalanx.open(root).spec.id == 2
        assert specs(phalanx.open(root)) == [1, 1, 1]
        table = phalanx.open(root).append(NEW)
        assert ids(table, "country = 'CA'") == [3, 6]
        assert table.check().ok

    def test_evolve_behind_an_append(self, root):
        stale = phalanx.create(root, SCHEMA, ["day"])
        phalanx.open(root).append(OLD)
        stale.evolve_partitioning(["country"])
        assert ids(stale) == [1, 2, 3, 4]
        assert stale.version == 3

    def test_update_and_merge_are_worked_out_again(self, root):
        table = phalanx.create(root, SCHEMA, ["day"]).append(OLD)
        with table.transaction() as tx:
            tx._update({"country": "'DE'"}, "id = 1")
            tx._merge([row(2, DAY_2, "FR")], ["id"], "update", "insert")
            phalanx.open(root).evolve_partitioning(["country"])
        assert ids(table) == [1, 2, 3, 4]
        plan = table.scan(where="country IN ('DE', 'FR')").plan()
        assert [leaf.values["country"] for leaf in plan.leaves if leaf.row.spec_id == 2] == [
            "DE",
            "FR",
        ]
        assert table.check().ok

    def test_overwrite_of_partitions_fails(self, root):
        table = phalanx.create(root, SCHEMA, ["day"]).append(OLD)
        tx = table.transaction()
        tx.overwrite([row(9)], "partitions")
        phalanx.open(root).evolve_partitioning(["country"])
        with pytest.raises(ConflictError, match="spec"):
            tx.commit()
        assert ids(phalanx.open(root)) == [1, 2, 3, 4]

    @pytest.mark.parametrize("mode", ["strong", "weak"])
    def test_two_evolve(self, root, mode):
        phalanx.create(root, SCHEMA, ["day"], transactions=mode)
        first, second = phalanx.open(root), phalanx.open(root)
        first.evolve_partitioning(["country"])
        second.evolve_partitioning(["bucket(4, id)"])
        assert [[f.field_id for f in spec.fields] for spec in second.specs] == [
            ["day"],
            ["country"],
            ["id_bucket"],
        ]
        assert second.append(OLD).check().ok

    def test_rows_cut_by_a_spec_that_came_out_otherwise(self, root):
        table = phalanx.create(root, SCHEMA, ["day"])
        tx = table.transaction()
        tx.evolve_partitioning(["country"])
        tx.append(OLD)
        phalanx.open(root).evolve_partitioning(["bucket(4, id)"])
        with pytest.raises(ConflictError, match="another spec"):
            tx.commit()
        assert phalanx.open(root).count() == 0
        assert phalanx.open(root).check().ok

    def test_many_at_once(self, root):
        phalanx.create(root, SCHEMA, ["day"])
        choices = (["country"], ["day", "country"], ["bucket(2, id)"], [])
        errors = []

        def evolve():
            for entries in choices:
                phalanx.open(root).evolve_partitioning(entries)

        def append(first):
            try:
                for id in range(first, first + 4):
                    phalanx.open(root).append([row(id), row(id + 100, None, "CA")])
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=append, args=(n,)) for n in (10, 20)]
        threads.append(threading.Thread(target=evolve))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        table = phalanx.open(root)
        assert ids(table, "country = 'US'") == [*range(10, 14), *range(20, 24)]
        assert ids(table, "country = 'CA'") == [*range(110, 114), *range(120, 124)]
        assert table.check().ok


def test_what_was_worked_out_from_another_spec_is_void(tmp_path):
    """Two who each add a field to the fields that they see must not undo each other."""
    table = phalanx.create(tmp_path / "t", pa.schema([("id", pa.int64())]), [])
    known = table.spec
    phalanx.open(table.uri).evolve_partitioning(["id"])
    with (
        pytest.raises(ConflictError, match="was changed by another transaction"),
        table.transaction() as tx,
    ):
        tx.evolve_partitioning(["bucket(2, id)"], instead_of=known)
    assert [field.field_id for field in phalanx.open(table.uri).spec.fields] == ["id"]


class TestLeftBehind:
    def test_a_column_of_another_type(self, root):
        """Somebody has added a column for a field, and did not live to use it."""
        table = phalanx.create(root, SCHEMA, ["day"]).append(OLD)
        lance.dataset(f"{table.uri}/__manifest").add_columns(
            pa.field("partition_field_country", pa.int32())
        )
        assert ids(phalanx.open(root)) == [1, 2, 3, 4]
        table = phalanx.open(root)
        table.evolve_partitioning(["country"])
        table.append(NEW)
        assert ids(table, "country = 'CA'") == [3, 6]
        assert table.check().ok

    def test_a_wider_column(self, root):
        table = phalanx.create(root, pa.schema([("n", pa.int32())]), ["n"])
        table.append([{"n": 1}, {"n": None}])
        manifest = ManifestVersion(Location(root)).dataset
        manifest.alter_columns({"path": "partition_field_n", "data_type": pa.int64()})
        table = phalanx.open(root).append([{"n": 1}, {"n": 2}])
        assert Snapshot.latest(Location(root)).leaves.column("partition_field_n").values.type == (
            pa.int32()
        )
        assert table.count("n = 1") == 2
        assert table.partitions().num_rows == 3
