"""Existing Lance datasets that become the leaves of a table."""

import datetime as dt
import os

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileSession

import phalanx
from phalanx.interop import adopt
from tests.transaction import processes

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("country", pa.string()),
        ("ts", pa.timestamp("us")),
        ("inner", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])),
    ]
)
TS = dt.datetime(2025, 12, 10, 5)


def lines(*ids, country="US", ts=TS):
    return [
        {"id": id, "country": country, "ts": ts, "inner": {"x": id, "y": [str(id)]}} for id in ids
    ]


def table_of(rows, schema=SCHEMA):
    return pa.Table.from_pylist(rows, schema=schema)


def write(path, *batches, schema=SCHEMA, **options):
    for batch in batches:
        lance.write_dataset(table_of(batch, schema), path, mode="append", **options)
    return str(path)


def content(table, **options):
    return sorted(table.scan(**options).to_arrow().to_pylist(), key=lambda line: line["id"])


def files(folder):
    return {
        path.relative_to(folder): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def sources(tmp_path):
    write(tmp_path / "us", lines(1, 2), lines(3))
    write(tmp_path / "ca", lines(4, 5, country="CA"))
    write(tmp_path / "none", lines(6, country=None))
    return tmp_path


@pytest.fixture
def table(root, sources):
    by_value = {"US": sources / "us", "CA": str(sources / "ca"), None: sources / "none"}
    return adopt(root, SCHEMA, ["country"], by_value)


ALL = [*lines(1, 2, 3), *lines(4, 5, country="CA"), *lines(6, country=None)]


class TestAdopt:
    def test_rows(self, table, root):
        assert content(table) == ALL
        assert content(phalanx.open(root)) == ALL
        assert content(table, where="country = 'CA' AND id > 4") == lines(5, country="CA")
        assert table.scan(where="country = 'US'").plan().selected == 1
        assert table.count() == 6
        assert [p["rows"] for p in table.partitions().to_pylist()] == [1, 2, 3]

    def test_one_transaction(self, table):
        assert table.version == 1
        (record,) = table.snapshots().to_pylist()
        assert (record["operation"], record["rows_added"], record["leaves"]) == ("adopt", 6, 3)

    def test_check_is_clean(self, table):
        assert table.check().problems == []

    def test_no_data_is_copied(self, table, root, sources):
        assert list(root.glob("*_v1*/data/*")) == []
        paths = set(table.files().column("path").to_pylist())
        assert paths == {
            str(p) for name in ("us", "ca", "none") for p in (sources / name).glob("data/*")
        }

    def test_the_sources_stay_as_they_are(self, root, sources):
        before = {name: files(sources / name) for name in ("us", "ca")}
        table = adopt(root, SCHEMA, ["country"], {"US": sources / "us", "CA": sources / "ca"})
        table.append(lines(7))
        table.delete("id = 1")
        table.update({"id": "id + 100"}, "id = 4")
        table.merge(lines(2, 9), on=["id"])
        table.optimize()
        table.overwrite(lines(50, country="CA"), mode="partitions")
        table.vacuum(older_than=dt.timedelta(0), force=True)
        assert {name: files(sources / name) for name in ("us", "ca")} == before
        assert [line["id"] for line in content(table)] == [2, 3, 7, 9, 50]
        assert table.check().damage == []

    def test_vacuum_after_everything_was_deleted(self, table, sources):
        before = files(sources / "us")
        table.delete("country = 'US'")
        table.vacuum(older_than=dt.timedelta(0), force=True)
        assert files(sources / "us") == before
        table.append(lines(8))
        assert content(table, where="country = 'US'") == lines(8), "no adopted row comes back"

    def test_every_operation(self, table, root):
        table.append(lines(7))
        table.delete("id = 1")
        table.update({"country": "'MX'"}, "id = 4")
        table.add_column("more", pa.int64())
        table.rename_column("id", "number")
        assert table.scan(where="number = 2").to_arrow().to_pylist() == [
            {"number": 2, "country": "US", "ts": TS, "inner": {"x": 2, "y": ["2"]}, "more": None}
        ]
        table.evolve_partitioning(["bucket(2, number)"])
        table.rewrite()
        table.optimize()
        table.vacuum()
        numbers = sorted(phalanx.open(root).scan().to_arrow()["number"].to_pylist())
        assert numbers == [2, 3, 4, 5, 6, 7]
        assert content(phalanx.open(root, version=1)) == ALL
        assert table.check().damage == []

    def test_the_source_may_go_on(self, table, sources):
        lance.write_dataset(table_of(lines(99)), sources / "us", mode="append")
        lance.dataset(sources / "us").delete("id = 1")
        assert content(table) == ALL
        assert content(phalanx.open(table.uri)) == ALL

    def test_a_source_that_is_cleaned_up(self, table, sources):
        """Its files are gone, and that is said. Nothing else of the table is affected."""
        lance.write_dataset(table_of(lines(99)), sources / "us", mode="overwrite")
        lance.dataset(sources / "us").cleanup_old_versions(dt.timedelta(0), delete_unverified=True)
        with pytest.raises(phalanx.CorruptTable, match="is gone or damaged"):
            phalanx.open(table.uri).scan(where="country = 'US'").to_arrow()
        assert len(content(phalanx.open(table.uri), where="country = 'CA'")) == 2
        damage = table.check().damage
        assert {problem.kind for problem in damage} == {"file-missing"}
        assert all(problem.where.startswith(f"{sources}/us/data/") for problem in damage)


class TestSources:
    def test_deleted_rows(self, root, tmp_path):
        path = write(tmp_path / "a", lines(1, 2, 3), lines(4), lines(5, 6), lines(7, 8))
        dataset = lance.dataset(path)
        # The second fragment is gone, and the others keep their numbers.
        dataset.delete("id IN (2, 4, 6)")
        table = adopt(root, SCHEMA, ["country"], {"US": path})
        assert [line["id"] for line in content(table)] == [1, 3, 5, 7, 8]
        assert table.count() == 5
        assert table.check().damage == []
        table.delete("id = 5")
        assert [line["id"] for line in content(phalanx.open(root))] == [1, 3, 7, 8]

    def test_other_ids_and_another_order(self, root, tmp_path):
        """Columns were added, dropped and renamed: ids and files are not what they were."""
        path = tmp_path / "a"
        old = pa.schema([("gone", pa.int64()), ("name", pa.string()), ("n", pa.int64())])
        lance.write_dataset(
            pa.table({"gone": [0, 0], "name": ["US", "US"], "n": [1, 2]}, old), path
        )
        dataset = lance.dataset(path)
        dataset.drop_columns(["gone"])
        dataset.add_columns({"extra": "n * 10"})
        dataset.alter_columns({"path": "name", "name": "country"})
        schema = pa.schema([("extra", pa.int64()), ("n", pa.int64()), ("country", pa.string())])
        table = adopt(root, schema, ["country"], {"US": str(path)})
        assert table.scan().to_arrow().to_pylist() == [
            {"extra": 10, "n": 1, "country": "US"},
            {"extra": 20, "n": 2, "country": "US"},
        ]
        table.append([{"extra": 1, "n": 3, "country": "US"}])
        table.optimize()
        assert sorted(table.scan().to_arrow()["extra"].to_pylist()) == [1, 10, 20]
        assert table.check().damage == []

    def test_an_open_dataset_at_its_version(self, root, tmp_path):
        path = write(tmp_path / "a", lines(1), lines(2))
        table = adopt(root, SCHEMA, ["country"], {"US": lance.dataset(path, version=1)})
        assert content(table) == lines(1)

    @pytest.mark.parametrize("version", ["2.0", "2.1"])
    def test_older_files(self, root, tmp_path, version):
        schema = SCHEMA.remove(3)
        rows = [{k: v for k, v in line.items() if k != "inner"} for line in lines(1, 2)]
        path = write(tmp_path / "a", rows, schema=schema, data_storage_version=version)
        table = adopt(root, schema, ["country"], {"US": path})
        table.append([rows[0] | {"id": 3}])
        table.optimize()
        assert [line["id"] for line in content(table)] == [1, 2, 3]

    def test_stable_row_ids(self, root, tmp_path):
        path = write(tmp_path / "a", lines(1, 2), lines(3), enable_stable_row_ids=True)
        table = adopt(root, SCHEMA, ["country"], {"US": path})
        table.delete("id = 2")
        assert [line["id"] for line in content(table)] == [1, 3]

    def test_no_rows(self, root, tmp_path):
        path = write(tmp_path / "a", [])
        table = adopt(root, SCHEMA, ["country"], {"US": path})
        assert table.count() == 0
        assert table.scan().plan().total == 0
        assert table.append(lines(1)).count() == 1

    def test_no_datasets(self, root):
        assert adopt(root, SCHEMA, ["country"], {}).append(lines(1)).count() == 1

    def test_a_table_without_partitions(self, root, tmp_path):
        table = adopt(root, SCHEMA, [], {(): write(tmp_path / "a", lines(1))})
        assert content(table) == lines(1)

    def test_s3(self, s3_options, request):
        base = f"s3://lake/{request.node.name}"
        lance.write_dataset(table_of(lines(1, 2)), f"{base}/us", storage_options=s3_options)
        dataset = lance.dataset(f"{base}/us", storage_options=s3_options)
        dataset.delete("id = 1")
        table = adopt(
            f"{base}/table", SCHEMA, ["country"], {"US": f"{base}/us"}, storage_options=s3_options
        )
        table.append(lines(3))
        opened = phalanx.open(f"{base}/table", storage_options=s3_options)
        assert [line["id"] for line in content(opened)] == [2, 3]
        assert opened.check().damage == []
        opened.delete("id > 0")
        opened.vacuum(older_than=dt.timedelta(0), force=True)
        assert lance.dataset(f"{base}/us", storage_options=s3_options).count_rows() == 1

    def test_a_file_that_is_gone_from_s3(self, s3_options, request):
        base = f"s3://lake/{request.node.name}"
        lance.write_dataset(table_of(lines(1, 2)), f"{base}/us", storage_options=s3_options)
        table = adopt(
            f"{base}/table", SCHEMA, ["country"], {"US": f"{base}/us"}, storage_options=s3_options
        )
        (path,) = table.files().column("path").to_pylist()
        folder, _, name = path.rpartition("/")
        LanceFileSession(folder, storage_options=s3_options).delete_file(name)
        (problem,) = table.check().damage
        assert (problem.kind, problem.where) == ("file-missing", path)


class TestValues:
    def test_transforms(self, root, tmp_path):
        at = dt.datetime(2024, 2, 29, 23, 59)
        datasets = [
            ({"country": "US", "ts_year": 2025}, write(tmp_path / "a", lines(1, 2))),
            (("US", 2024), write(tmp_path / "b", lines(3, ts=at))),
            (("US", None), write(tmp_path / "c", lines(4, ts=None))),
        ]
        table = adopt(root, SCHEMA, ["country", "year(ts)"], datasets)
        assert [line["id"] for line in content(table)] == [1, 2, 3, 4]
        assert table.scan(where="ts >= TIMESTAMP '2025-01-01 00:00:00'").plan().selected == 1
        assert table.check().problems == []

    def test_buckets(self, root, tmp_path):
        field = phalanx.create(tmp_path / "t", SCHEMA, ["bucket(4, id)"]).spec.fields[0]
        buckets = field.transform.apply([pa.array(range(20))]).to_pylist()
        datasets = {
            n: write(tmp_path / str(n), lines(*(id for id in range(20) if buckets[id] == n)))
            for n in range(4)
        }
        table = adopt(root, SCHEMA, ["bucket(4, id)"], datasets)
        assert [line["id"] for line in content(table)] == list(range(20))
        table.append(lines(*range(20)))
        assert table.scan().plan().total == 4
        assert all(table.count(f"id = {id}") == 2 for id in range(20))

    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            ([*lines(1), *lines(2, country="CA")], "whose country is CA, not US"),
            ([*lines(1), *lines(2, country=None)], "whose country is NULL, not US"),
            (lines(1, country="us"), "whose country is us, not US"),
        ],
    )
    def test_rows_of_another_partition(self, root, tmp_path, rows, message):
        path = write(tmp_path / "a", rows)
        with pytest.raises(phalanx.InvalidInput, match=message):
            adopt(root, SCHEMA, ["country"], {"US": path})
        with pytest.raises(phalanx.TableNotFound):
            phalanx.open(root)

    def test_a_row_in_the_last_batch(self, root, tmp_path):
        path = write(tmp_path / "a", lines(*range(100_000)), lines(7, country="CA"))
        with pytest.raises(phalanx.InvalidInput, match="whose country is CA"):
            adopt(root, SCHEMA, ["country"], {"US": path})

    def test_null_where_there_are_values(self, root, tmp_path):
        with pytest.raises(phalanx.InvalidInput, match="is US, not NULL"):
            adopt(root, SCHEMA, ["country"], {None: write(tmp_path / "a", lines(1))})

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            (("US", 1), "one value for each of country"),
            ((), "one value for each of country"),
            (5, "is not a value of the partition field 'country'"),
        ],
    )
    def test_values_that_do_not_fit(self, root, tmp_path, values, message):
        with pytest.raises(phalanx.InvalidInput, match=message):
            adopt(root, SCHEMA, ["country"], {values: write(tmp_path / "a", lines(1))})

    def test_two_datasets_of_one_partition(self, root, tmp_path):
        path = write(tmp_path / "a", lines(1))
        with pytest.raises(phalanx.InvalidInput, match="two datasets for the partition"):
            adopt(root, SCHEMA, ["country"], [("US", path), (("US",), path)])


class TestLeavesOfTables:
    """The rows of a strong table are in versions that a path need not lead to."""

    @pytest.fixture
    def leaf(self, tmp_path):
        (leaf,) = (
            phalanx.create(tmp_path / "other", table_of(lines(1, 2)), ["country"])
            .scan()
            .plan()
            .leaves
        )
        return leaf

    def test_a_path_is_refused(self, root, leaf):
        with pytest.raises(
            phalanx.InvalidInput, match=r"the versions of a leaf.*lance\.dataset"
        ) as refusal:
            adopt(root, SCHEMA, ["country"], {"US": leaf.uri})
        assert leaf.uri in str(refusal.value)
        assert not root.exists()

    def test_also_if_main_has_been_published(self, root, leaf, tmp_path):
        phalanx.open(tmp_path / "other").append(lines(3)).optimize()
        with pytest.raises(phalanx.InvalidInput, match="the versions of a leaf"):
            adopt(root, SCHEMA, ["country"], {"US": leaf.uri})

    def test_a_version_that_is_open_is_adopted(self, root, leaf):
        dataset = lance.dataset(leaf.uri, version=int(leaf.version))
        table = adopt(root, SCHEMA, ["country"], {"US": dataset})
        assert content(table) == lines(1, 2)
        assert table.check().ok

    def test_in_an_object_store(self, s3_options, request):
        base = f"s3://lake/{request.node.name}"
        options = {"storage_options": s3_options}
        other = phalanx.create(f"{base}/other", table_of(lines(1)), ["country"], **options)
        (leaf,) = other.scan().plan().leaves
        with pytest.raises(phalanx.InvalidInput, match="the versions of a leaf"):
            adopt(f"{base}/table", SCHEMA, ["country"], {"US": leaf.uri}, **options)


class TestSchemas:
    @pytest.mark.parametrize(
        ("schema", "message"),
        [
            (SCHEMA.append(pa.field("more", pa.int64())), "has no column 'more'"),
            (SCHEMA.remove(0), "'id' is not in the schema"),
            (SCHEMA.set(0, pa.field("id", pa.int32())), "'id' is int64, not int32"),
            (SCHEMA.set(0, pa.field("id", pa.int64(), nullable=False)), "'id' may be NULL"),
        ],
    )
    def test_refused(self, root, tmp_path, schema, message):
        path = write(tmp_path / "a", lines(1))
        with pytest.raises(phalanx.InvalidInput, match=message):
            adopt(root, schema, ["country"], {"US": path})
        assert not (root / "__manifest").exists()

    def test_a_missing_partition_column(self, root, tmp_path):
        """Values that are only in the metadata are not supported."""
        schema = SCHEMA.remove(1)
        rows = [{k: v for k, v in line.items() if k != "country"} for line in lines(1)]
        path = write(tmp_path / "a", rows, schema=schema)
        with pytest.raises(phalanx.InvalidInput, match="has no column 'country'"):
            adopt(root, SCHEMA, ["country"], {"US": path})

    def test_a_clone(self, root, tmp_path):
        write(tmp_path / "a", lines(1))
        lance.dataset(tmp_path / "a").shallow_clone(tmp_path / "b", 1)
        with pytest.raises(phalanx.InvalidInput, match="borrows files of another dataset"):
            adopt(root, SCHEMA, ["country"], {"US": tmp_path / "b"})

    def test_the_first_format(self, root, tmp_path):
        schema = SCHEMA.remove(3)
        rows = [{k: v for k, v in line.items() if k != "inner"} for line in lines(1)]
        path = write(tmp_path / "a", rows, schema=schema, data_storage_version="legacy")
        with pytest.raises(phalanx.InvalidInput, match="the first format of Lance"):
            adopt(root, schema, ["country"], {"US": path})


class TestPlaces:
    def test_there_is_a_table_already(self, table, root, sources):
        with pytest.raises(phalanx.TableExists):
            adopt(root, SCHEMA, ["country"], {"US": sources / "us"})
        assert content(table) == ALL

    def test_inside_of_the_table(self, root):
        path = write(root / "us", lines(1))
        with pytest.raises(phalanx.InvalidInput, match="lies inside of the table"):
            adopt(root, SCHEMA, ["country"], {"US": path})

    @pytest.mark.parametrize("source", ["nothing", 5, None])
    def test_no_dataset(self, root, tmp_path, source):
        source = tmp_path / source if isinstance(source, str) else source
        with pytest.raises(phalanx.InvalidInput, match="Lance dataset"):
            adopt(root, SCHEMA, ["country"], {"US": source})

    def test_a_kill_leaves_no_table(self, root, sources):
        process = processes.start(adopt_and_die, str(root), str(sources / "us"))
        process.join(60)
        with pytest.raises(phalanx.PhalanxError):
            phalanx.open(root)
        table = adopt(root, SCHEMA, ["country"], {"US": sources / "us"})
        assert content(table) == lines(1, 2, 3)
        assert {problem.kind for problem in table.check().problems} == {"orphan-folder"}

    def test_two_at_once(self, root, sources):
        results = processes.together(
            (adopt_or_not, str(root), str(sources / "us")),
            (adopt_or_not, str(root), str(sources / "us")),
        )
        assert sorted(results) == [False, True]
        assert content(phalanx.open(root)) == lines(1, 2, 3)


def adopt_and_die(root, source):
    os.environ["PHALANX_FAILPOINT"] = "adopt.leaves-made:kill"
    adopt(root, SCHEMA, ["country"], {"US": source})


def adopt_or_not(root, source):
    try:
        adopt(root, SCHEMA, ["country"], {"US": source})
    except phalanx.TableExists:
        return False
    return True
