"""Tables of other clients that become tables of ours."""

import datetime as dt
import json
import os
import signal

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx.interop import upgrade, upgrading
from phalanx.model.transforms import Identity, Md5Bucket, Year
from phalanx.storage.manifest import GUARD_KEY, ManifestVersion
from tests import s3
from tests.conformance.appendices import APPENDIX_A_SCHEMA, DAY_1, DAY_2, SCHEMA, StockClient, row
from tests.conformance.test_foreign_manifest import write_foreign
from tests.interop.earlier_tables import BY_DATE, LEAF_1, EarlierTable, appendix_c, rows
from tests.interop.test_earlier import branched
from tests.transaction import processes

BY_BUCKET = [
    {
        "field_id": "bucket",
        "source_ids": [0],
        "expression": "abs(md5_int(col0)) % 4",
        "result_type": {"type": "int64"},
    }
]
STEPS = ["leaves-pinned", "guarded", "rows-replaced", "published"]


def content(table):
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda line: line["id"])


def manifest(root):
    return lance.dataset(root / "__manifest")


class TestNotNull:
    """The schema of the appendices says that `id` is NOT NULL."""

    def table(self, root, *ids):
        optional = pa.schema([field.with_nullable(True) for field in SCHEMA])
        table = EarlierTable(root, APPENDIX_A_SCHEMA, {1: BY_DATE})
        table.leaf(1, (DAY_1,), rows((1, DAY_1, "US")), read_version=1)
        table.leaf(1, (DAY_2,), rows(*((id, DAY_2, "US") for id in ids), schema=optional))
        return table.commit()

    def test_rows_that_are_null_all_the_same(self, root):
        uri = self.table(root, 2, None)
        assert phalanx.open(uri).count("id IS NULL") == 1
        table = upgrade(uri)
        assert table.schema.field("id").nullable
        table.delete("id IS NOT NULL")
        assert table.to_arrow()["id"].to_pylist() == [None]
        assert table.check().ok

    def test_the_column_stays_not_null_if_none_is(self, root):
        table = upgrade(self.table(root, 2, 3))
        assert not table.schema.field("id").nullable
        assert table.count("id IS NULL") == 0
        with pytest.raises(phalanx.InvalidInput, match="'id' holds NULL"):
            table.append([{"id": None, "event_date": DAY_1, "country": "US"}])
        table.append([{"id": 4, "event_date": DAY_2, "country": "US"}])
        assert [row["id"] for row in content(table)] == [1, 2, 3, 4]
        assert table.check().ok

    def test_a_leaf_without_the_column(self, root):
        table = EarlierTable(root, APPENDIX_A_SCHEMA, {1: BY_DATE})
        table.leaf(1, (DAY_1,), rows((1, DAY_1, "US")))
        folder = table.leaf(1, (DAY_2,), rows((2, DAY_2, "US")))
        lance.dataset(root / folder).drop_columns(["id"])
        uri = table.commit()
        assert phalanx.open(uri).count("id IS NULL") == 1
        assert upgrade(uri).count("id IS NULL") == 1

    def test_a_table_of_todays_specification(self, root):
        write_foreign(root)
        assert all(field.nullable for field in phalanx.open(root).schema)
        assert not upgrade(root).schema.field("id").nullable


class TestColumns:
    """A leaf that would be misread is refused before anything is written."""

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            (lambda t: t.select(["id", "country", "event_date"]), "has the id 1 for the column"),
            (lambda t: t.select(["id"]), "has no column 'event_date'"),
            (lambda t: t.set_column(0, "id", [pa.array(["05"])]), "'id' as string"),
        ],
    )
    def test_refused(self, root, change, text):
        table = EarlierTable(root, APPENDIX_A_SCHEMA, {1: BY_DATE})
        folders = [table.leaf(1, (DAY_1,), rows((1, DAY_1, "US")), rows((2, DAY_1, "US")))]
        folders += [table.leaf(1, (DAY_2,), change(rows((2, DAY_2, "US"))))]
        uri = table.commit()
        before = [lance.dataset(root / name).version for name in ("__manifest", *folders)]
        with pytest.raises(phalanx.UnsupportedTable, match=text):
            upgrade(uri)
        after = [lance.dataset(root / name).version for name in ("__manifest", *folders)]
        assert after == before

    def test_a_leaf_outside_of_the_table(self, root):
        table = EarlierTable(root / "table", APPENDIX_A_SCHEMA, {1: BY_DATE})
        table.leaf(1, (DAY_1,), rows((1, DAY_1, "US")), folder="../out")
        with pytest.raises(phalanx.PhalanxError, match="does not lie inside the table"):
            upgrade(table.commit())

    def test_a_narrower_type_is_widened(self, root):
        table = EarlierTable(root, APPENDIX_A_SCHEMA, {1: BY_DATE})
        narrow = SCHEMA.set(0, pa.field("id", pa.int16(), nullable=False))
        table.leaf(1, (DAY_1,), rows((7, DAY_1, "US")).cast(narrow))
        table = upgrade(table.commit())
        table.append([{"id": 2**40, "event_date": DAY_1, "country": "US"}])
        assert [row["id"] for row in content(table)] == [7, 2**40]
        assert table.check().ok


class TestUpgrade:
    def test_the_same_rows_and_the_same_files(self, root):
        uri = appendix_c(root).commit()
        before = content(phalanx.open(uri))
        data = {path: path.stat().st_mtime_ns for path in root.glob("*/data/*")}
        data = {path: time for path, time in data.items() if "__manifest" not in str(path)}
        table = upgrade(uri)
        assert content(table) == before
        after = {path for path in root.glob("*/data/*") if "__manifest" not in str(path)}
        assert after == set(data), "no data is moved"
        assert table.version == 1
        assert [type(f.transform) for f in table.spec.fields] == [Year, Identity]

    def test_check_is_clean(self, root):
        table = upgrade(appendix_c(root).commit())
        assert table.check().problems == []

    def test_every_leaf_is_pinned(self, root):
        table = upgrade(appendix_c(root).commit())
        partitions = table.partitions().to_pylist()
        assert all(p["version"] is not None and p["rows"] is not None for p in partitions)
        assert sum(p["rows"] for p in partitions) == table.count() == 11
        leaf = root / f"b4a3c2d1_{LEAF_1}"
        assert lance.dataset(leaf).count_rows() == 5, "main shows what the table shows"
        lance.write_dataset(rows((99, DAY_1, "US")), leaf, mode="append")
        assert phalanx.open(root).count() == 11
        (problem,) = phalanx.check(root).damage
        assert problem.kind == "foreign-commits"
        assert "1 row added" in problem.what

    def test_the_head_and_its_copies(self, root):
        upgrade(appendix_c(root).commit())
        dataset = manifest(root)
        assert json.loads(dataset.metadata["partition_spec_v2"])["fields"][0]["transform"] == {
            "type": "year"
        }
        assert not {"read_branch", "read_tag"} & set(dataset.schema.names)
        types = dataset.to_table(columns=["object_type"])["object_type"].to_pylist()
        assert types.count("__head") == types.count("transaction") == 1
        assert types.count("table") == types.count("table_version") == 5
        client = StockClient(str(root))
        tables = [t for id in client.spaces() for t in client.tables(id)]
        assert len(tables) == 5
        assert client.properties("v2", "e9f0g1h2i3j4k5l6") == {"partition.event_year": "2025"}

    def test_every_operation(self, root):
        table = upgrade(appendix_c(root).commit())
        table.append([row(100, DAY_1, "US"), row(101, DAY_2, "FR")])
        table.delete("id = 1")
        table.update({"country": "'MX'"}, "id = 2")
        table.merge([row(3, DAY_1, "US"), row(102, DAY_1, "US")], on=["id"])
        table.add_column("more", pa.int64())
        table.rename_column("country", "land")
        table.evolve_partitioning(["land"])
        table.tag("kept")
        assert table.optimize() is not None
        table.rewrite()
        wanted = [2, 3, 4, 5, 20, 30, 31, 32, 40, 50, 100, 101, 102]
        assert [line["id"] for line in content(table)] == wanted
        table.vacuum(force=True, older_than=dt.timedelta(0))
        assert [line["id"] for line in content(phalanx.open(root))] == wanted
        assert table.check().damage == []

    def test_a_leaf_that_is_emptied_and_filled_again(self, root):
        table = upgrade(appendix_c(root).commit())
        table.delete("event_date = '2025-12-11'")
        table.append([row(21, DAY_2, "US")])
        assert table.scan(where="event_date = '2025-12-11'").to_arrow()["id"].to_pylist() == [21]
        assert phalanx.open(root, version=1).count() == 11

    def test_twice(self, root):
        uri = appendix_c(root).commit()
        upgrade(uri)
        version = manifest(root).version
        assert upgrade(uri).version == 1
        assert manifest(root).version == version, "nothing is left to do"

    def test_an_unknown_choice(self, root):
        with pytest.raises(phalanx.InvalidInput, match="'refuse' or 'copy'"):
            upgrade(appendix_c(root).commit(), branches="keep")

    def test_no_table(self, root):
        with pytest.raises(phalanx.TableNotFound):
            upgrade(root)

    def test_an_empty_table(self, root):
        table = EarlierTable(root, APPENDIX_A_SCHEMA, {1: BY_DATE})
        table.leaf(1, (DAY_1,), rows((1, DAY_1, "US")))
        table.lines = {"v1": table.lines["v1"]}
        opened = upgrade(table.commit())
        assert opened.count() == 0
        assert opened.append([row(1, DAY_1, "US")]).count() == 1
        assert [p.kind for p in opened.check().problems] == ["orphan-folder"]

    def test_rows_and_columns_of_others_are_kept(self, root):
        table = appendix_c(root)
        table._line("friends", "namespace", {})
        table._line("friends$table", "table", {"location": "12345678_friends$table"})
        uri = table.commit()
        manifest(root).add_columns({"owner": "concat('owner of ', object_id)"})
        opened = upgrade(uri)
        lines = {r["object_id"]: r for r in manifest(root).to_table().to_pylist()}
        assert lines["friends$table"]["location"] == "12345678_friends$table"
        assert lines["friends$table"]["owner"] == "owner of friends$table"
        assert lines[LEAF_1]["owner"] == f"owner of {LEAF_1}"
        assert lines["__head"]["owner"] is None
        assert opened.append([row(7, DAY_1, "US")]).count() == 12


class TestExpressions:
    def bucket_of(self, id):
        return Md5Bucket("abs(md5_int(col0)) % 4").apply([pa.array([id])])[0].as_py()

    def test_md5_buckets_stay(self, root):
        table = EarlierTable(root, APPENDIX_A_SCHEMA, {1: BY_BUCKET})
        for bucket in {self.bucket_of(id) for id in range(8)}:
            part = [(id, DAY_1, "US") for id in range(8) if self.bucket_of(id) == bucket]
            table.leaf(1, (bucket,), rows(*part), read_version=1)
        opened = upgrade(table.commit())
        leaves = opened.scan().plan().total
        opened.append([row(id, DAY_2, "CA") for id in range(8)])
        assert opened.scan().plan().total == leaves, "the same ids go to the same partitions"
        for id in range(8):
            scan = opened.scan(where=f"id = {id}")
            assert scan.plan().selected == 1
            assert scan.count() == 2
        assert opened.check().problems == []
        assert phalanx.open(root).spec.fields[0].to_json()["expression"] == "abs(md5_int(col0)) % 4"

    @pytest.mark.parametrize(
        ("expression", "why"),
        [
            ("md5_int(col0) % 4", "md5_int"),
            ("random()", "cannot be used"),
            ("col0 + 1", "its values have the type int32"),
        ],
    )
    def test_what_cannot_be_computed_is_refused(self, root, expression, why):
        result = {"type": "int32" if "+" in expression else "int64"}
        spec = [BY_BUCKET[0] | {"expression": expression, "result_type": result}]
        table = EarlierTable(root, APPENDIX_A_SCHEMA, {1: spec})
        table.leaf(1, (1,), rows((1, DAY_1, "US")), read_version=1)
        uri = table.commit()
        before = manifest(root).version
        with pytest.raises(phalanx.UnsupportedTable, match="cannot be computed here: ") as error:
            upgrade(uri)
        assert why in str(error.value)
        assert manifest(root).version == before
        assert phalanx.open(uri).count() == 1, "it can still be read"


class TestPins:
    def make(self, root, **read):
        table = EarlierTable(root, APPENDIX_A_SCHEMA, {1: BY_DATE})
        folder = table.leaf(1, (DAY_1,), rows((1, DAY_1, "US")), rows((2, DAY_1, "US")), **read)
        return table, folder

    def test_a_tag_is_resolved(self, root):
        table, folder = self.make(root, read_tag="good")
        tags = lance.dataset(root / folder).tags
        tags.create("good", 1)
        opened = upgrade(table.commit())
        tags.update("good", 2)
        assert [line["id"] for line in content(phalanx.open(root))] == [1]
        assert opened.check().problems == []

    def test_the_newest_on_main(self, root):
        table, folder = self.make(root)
        opened = upgrade(table.commit())
        lance.write_dataset(rows((3, DAY_1, "US")), root / folder, mode="append")
        assert phalanx.open(root).count() == 2
        assert opened.count() == 2

    def test_a_branch_is_refused(self, root):
        table, folder = self.make(root, read_version=2, read_branch="dev/one")
        branched(root, folder)
        uri = table.commit()
        with pytest.raises(phalanx.UnsupportedTable, match="branches='copy'"):
            upgrade(uri)
        assert phalanx.open(uri).count() == 2
        assert GUARD_KEY not in manifest(root).metadata

    def test_a_branch_is_copied(self, root):
        table, folder = self.make(root, read_version=2, read_branch="dev/one")
        branched(root, folder)
        opened = upgrade(table.commit(), branches="copy")
        assert [line["id"] for line in content(opened)] == [1, 7]
        opened.append([row(9, DAY_1, "US")])
        assert [line["id"] for line in content(phalanx.open(root))] == [1, 7, 9]
        assert opened.check().damage == []
        branch = lance.dataset(root / folder).checkout_version(("dev/one", None))
        assert branch.count_rows() == 3, "the branch stays"

    def test_the_ids_of_dropped_columns_are_not_used_again(self, root):
        schema = SCHEMA.append(pa.field("secret", pa.int64()))
        table = EarlierTable(root, APPENDIX_A_SCHEMA, {1: BY_DATE})
        batch = rows((1, DAY_1, "US", 42), schema=schema)
        folder = table.leaf(1, (DAY_1,), batch, read_version=2)
        lance.dataset(root / folder).drop_columns(["secret"])
        opened = upgrade(table.commit())
        opened.add_column("public", pa.int64())
        assert opened.scan().to_arrow()["public"].to_pylist() == [None]
        opened.append([row(2, DAY_1, "US") | {"public": 7}])
        opened.optimize()
        assert sorted(map(str, opened.scan().to_arrow()["public"].to_pylist())) == ["7", "None"]

    def test_durably(self, root, monkeypatch):
        monkeypatch.setenv("PHALANX_DURABLE", "1")
        synced = []
        monkeypatch.setattr(upgrading.fsync, "sync", lambda uris, since: synced.extend(uris))
        table, folder = self.make(root, read_version=2)
        upgrade(table.commit())
        assert synced == [f"{root}/{folder}", f"{root}/__manifest"]

    def test_two_leaves_of_one_partition(self, root):
        table, _ = self.make(root, read_version=2)
        table.leaf(1, (DAY_1,), rows((3, DAY_1, "US")), read_version=1)
        uri = table.commit()
        assert [line["id"] for line in content(phalanx.open(uri))] == [1, 2, 3]
        with pytest.raises(phalanx.UnsupportedTable, match="two leaves for one partition"):
            upgrade(uri)

    def test_a_version_that_is_gone(self, root):
        table, _ = self.make(root, read_version=9)
        uri = table.commit()
        before = manifest(root).version
        with pytest.raises(phalanx.CorruptTable):
            upgrade(uri)
        assert manifest(root).version == before

    def test_partitions_of_null_and_of_negative_numbers(self, root):
        spec = [
            {
                "field_id": "id_tens",
                "source_ids": [0],
                "expression": "col0 - (col0 % 10)",
                "result_type": {"type": "int64"},
            },
            {
                "field_id": "country",
                "source_ids": [2],
                "expression": "col0",
                "result_type": {"type": "utf8"},
            },
        ]
        table = EarlierTable(root, APPENDIX_A_SCHEMA, {1: spec})
        table.leaf(1, (-10, None), rows((-19, DAY_1, None), (-10, DAY_1, None)), read_version=1)
        table.leaf(1, (0, None), rows((-9, DAY_1, None), (9, DAY_1, None)), read_version=1)
        table.leaf(1, (0, ""), rows((5, DAY_1, "")), read_version=1)
        opened = upgrade(table.commit())
        opened.append([row(-15, DAY_1, None), row(-1, DAY_1, ""), row(3, DAY_1, None)])
        assert opened.scan().plan().total == 3
        assert [line["id"] for line in content(opened)] == [-19, -15, -10, -9, -1, 3, 5, 9]
        assert opened.scan(where="id < -9").plan().selected == 1
        assert opened.scan(where="country IS NULL AND id > 0").plan().selected == 1
        assert opened.check().problems == []

    def test_ids_that_are_not_the_tables(self, root):
        described = json.loads(json.dumps(APPENDIX_A_SCHEMA))
        for number, field in enumerate(described["fields"]):
            field["metadata"]["lance:field_id"] = str(number + 10)
        spec = [BY_DATE[0] | {"source_ids": [11]}]
        table = EarlierTable(root, described, {1: spec})
        table.leaf(1, (DAY_1,), rows((1, DAY_1, "US")), read_version=1)
        with pytest.raises(phalanx.UnsupportedTable, match="has the id 0 for the column id"):
            upgrade(table.commit())


class TestForeign:
    """Tables of today's specification that another client has made."""

    @pytest.mark.parametrize("strong", [True, False])
    def test_upgrade(self, root, strong):
        write_foreign(root, strong=strong)
        before = content(phalanx.open(root))
        table = upgrade(root)
        assert content(table) == before
        assert table.check().damage == []
        table.append([row(10, DAY_1, "US")])
        assert len(content(phalanx.open(root))) == len(before) + 1
        assert phalanx.open(root, version=1).count() == len(before)


def test_s3(root, s3_options, request):
    appendix_c(root).commit()
    store = s3.client(s3_options)
    for path in (path for path in root.rglob("*") if path.is_file()):
        key = f"{request.node.name}/{path.relative_to(root).as_posix()}"
        store.put_object(Bucket="lake", Key=key, Body=path.read_bytes())
    uri = f"s3://lake/{request.node.name}"
    before = content(phalanx.open(uri, storage_options=s3_options))
    assert before == content(phalanx.open(root))
    assert phalanx.check(uri, s3_options).ok
    table = upgrade(uri, storage_options=s3_options)
    assert content(table) == before
    table.append([row(100, DAY_1, "US")])
    opened = phalanx.open(uri, storage_options=s3_options)
    assert len(content(opened)) == len(before) + 1
    assert opened.check().damage == []


def upgrade_with(uri, setting):
    os.environ["PHALANX_FAILPOINT"] = setting
    upgrade(uri)


class TestCrashes:
    @pytest.mark.parametrize("step", STEPS)
    def test_a_kill_leaves_one_form_or_the_other(self, root, step):
        uri = appendix_c(root).commit()
        before = content(phalanx.open(uri))
        process = processes.start(upgrade_with, uri, f"upgrade.{step}:kill")
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
        opened = phalanx.open(uri)
        assert content(opened) == before
        if STEPS.index(step) >= STEPS.index("rows-replaced"):
            opened.append([row(100, DAY_1, "US")])
            before = content(phalanx.open(uri))
            assert len(before) == 12
        table = upgrade(uri)
        assert content(table) == before
        assert table.check().damage == []

    @pytest.mark.parametrize("step", STEPS[:2])
    def test_a_failure_takes_the_guard_away(self, root, step, monkeypatch):
        uri = appendix_c(root).commit()
        monkeypatch.setenv("PHALANX_FAILPOINT", f"upgrade.{step}:raise")
        with pytest.raises(OSError, match="failpoint"):
            upgrade(uri)
        assert manifest(root).metadata.get(GUARD_KEY, "0") == "0"
        monkeypatch.delenv("PHALANX_FAILPOINT")
        assert upgrade(uri).check().damage == []

    def test_a_reply_that_is_lost(self, root, monkeypatch):
        real = ManifestVersion.replace

        def deaf(self, update, gone):
            real(self, update, gone)
            raise OSError("connection reset")

        monkeypatch.setattr(ManifestVersion, "replace", deaf)
        table = upgrade(appendix_c(root).commit())
        assert table.check().damage == []


def appended(root):
    """A leaf that a client of the earlier specification adds, with plain Lance."""
    leaf = "v1$aaaaaaaaaaaaaaaa$dataset"
    lance.write_dataset(rows((60, DAY_2.replace(day=12), "US")), root / f"00000000_{leaf}")
    day = DAY_2.replace(day=12)
    lines = [
        {"object_id": "v1$aaaaaaaaaaaaaaaa", "object_type": "namespace", "metadata": "{}"},
        {
            "object_id": leaf,
            "object_type": "table",
            "metadata": "{}",
            "location": f"00000000_{leaf}",
            "read_version": 1,
        },
    ]
    lines = [line | {"partition_field_event_date": day} for line in lines]
    dataset = manifest(root)
    lance.write_dataset(pa.Table.from_pylist(lines, schema=dataset.schema), dataset, mode="append")


def moved(root):
    """A leaf that such a client moves to another version."""
    lance.dataset(root / "__manifest").update({"read_version": "7"}, f"object_id = '{LEAF_1}'")


class TestConcurrency:
    @pytest.mark.parametrize(("change", "count"), [(appended, 12), (moved, 13)])
    @pytest.mark.parametrize("step", ["leaves-pinned", "guarded"])
    def test_another_client_in_between(self, root, monkeypatch, change, count, step):
        """Its change is part of the table, whenever it comes."""
        uri = appendix_c(root).commit()
        pending = [change]

        def reach(name):
            if name == f"upgrade.{step}" and pending:
                pending.pop()(root)

        monkeypatch.setattr(upgrading, "reach", reach)
        table = upgrade(uri)
        assert not pending
        assert table.count() == count
        assert table.check().damage == []

    def test_two_upgrades(self, root):
        uri = appendix_c(root).commit()
        results = processes.together((count_upgraded, uri), (count_upgraded, uri))
        assert results == [11, 11]
        assert phalanx.open(uri).version == 1
        assert phalanx.check(uri).damage == []

    def test_a_client_that_never_stops(self, root, monkeypatch):
        uri = appendix_c(root).commit()
        monkeypatch.setattr(
            upgrading, "reach", lambda name: moved(root) if "guarded" in name else None
        )
        monkeypatch.setattr(upgrading, "_PATIENCE_SECONDS", 0.5)
        with pytest.raises(phalanx.ConflictError, match="nothing was changed, try again"):
            upgrade(uri)
        assert phalanx.open(uri).count() == 13
        assert manifest(root).metadata.get(GUARD_KEY, "0") == "0"


def count_upgraded(uri):
    return upgrade(uri).count()
