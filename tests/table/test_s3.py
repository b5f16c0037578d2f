"""Tables in an object store: here one on this machine."""

import lance
import pyarrow as pa
import pytest

import phalanx
from tests import s3
from tests.table.in_a_store import everything_said

SECRET = "hush-hush-do-not-tell"
SCHEMA = pa.schema([("id", pa.int64()), ("country", pa.string())])


@pytest.fixture(scope="module")
def options(s3_options):
    return s3_options


@pytest.fixture(scope="module")
def store(options):
    """A plain client of the same store."""
    return s3.client(options)


@pytest.fixture
def table(options, store, request):
    uri = f"s3://lake/{request.node.name}"
    table = phalanx.create(uri, SCHEMA, ["country"], storage_options=options)
    table.append([{"id": 1, "country": "a/b=$ü"}, {"id": 2, "country": None}])
    return table


def ids(table, **options):
    return sorted(table.scan(**options).to_arrow()["id"].to_pylist())


class TestRoundTrip:
    def test_another_process_reads_it(self, table, options):
        again = phalanx.open(table.uri, storage_options=options)
        assert again.version == 2
        assert ids(again) == [1, 2]
        assert ids(again, where="country = 'a/b=$ü'") == [1]
        assert again.count("country IS NULL") == 1
        assert again.uri == table.uri

    def test_appends_build_on_each_other(self, table, options):
        other = phalanx.open(table.uri, storage_options=options)
        table.append([{"id": 3, "country": "US"}])
        other.append([{"id": 4, "country": "US"}])
        again = phalanx.open(table.uri, storage_options=options)
        assert (again.version, ids(again)) == (4, [1, 2, 3, 4])
        assert again.partitions().num_rows == 3

    def test_versions(self, table, options):
        table.append([{"id": 3, "country": "US"}])
        old = phalanx.open(table.uri, version=2, storage_options=options)
        assert ids(old) == [1, 2]
        assert phalanx.open(table.uri, version=1, storage_options=options).count() == 0

    def test_other_shapes(self, table, options):
        table.rename_column("country", "land").add_column("n", pa.int32(), default=7)
        table.evolve_partitioning(["n", "land"])
        table.append([{"id": 3, "land": "x", "n": 8}])
        table.change_type("n", pa.int64())
        table.append([{"id": 4, "land": "x", "n": 2**40}, {"id": 5, "land": "x", "n": 8}])
        again = phalanx.open(table.uri, storage_options=options)
        assert again.count("land = 'x'") == 3
        assert again.count("n = 7") == 2
        assert again.count("n >= 8") == 3
        assert again.scan(where="n = 8").plan().selected == 3
        assert again.check().ok

    def test_leaves_are_where_the_plan_says(self, table, options):
        for leaf in table.scan().plan().leaves:
            dataset = lance.dataset(leaf.uri, version=leaf.version, storage_options=options)
            assert dataset.count_rows() == leaf.rows == 1


class TestErrors:
    def test_there_is_none(self, options, store):
        with pytest.raises(phalanx.TableNotFound, match="there is no table at s3://lake/nothing"):
            phalanx.open("s3://lake/nothing", storage_options=options)

    def test_there_is_one(self, table, options):
        with pytest.raises(phalanx.TableExists, match="already a table"):
            phalanx.create(table.uri, SCHEMA, storage_options=options)

    def test_no_such_bucket(self, options):
        sentence = "the bucket does not exist: create it first, or correct its name$"
        with pytest.raises(phalanx.TableNotFound, match=sentence):
            phalanx.open("s3://nobody/table", storage_options=options)

    def test_an_endpoint_without_tls(self, options):
        plain = {name: value for name, value in options.items() if name != "allow_http"}
        plain["client_max_retries"] = "0"
        sentence = "the storage option allow_http='true'$"
        for call in (phalanx.open, lambda *a, **o: phalanx.create(*a, SCHEMA, **o)):
            with pytest.raises(phalanx.StorageError, match=sentence):
                call("s3://lake/table", storage_options=plain)

    def test_no_credentials(self, options, monkeypatch):
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
        keyless = {name: value for name, value in options.items() if "key" not in name}
        for call in (phalanx.open, lambda *a, **o: phalanx.create(*a, SCHEMA, **o)):
            with pytest.raises(phalanx.StorageError, match="there are no credentials: give") as e:
                call("s3://lake/table", storage_options=keyless)
            assert "CredentialsNotLoaded" not in str(e.value)

    def test_the_name_that_hadoop_has_for_it(self, table, options):
        again = phalanx.open(table.uri.replace("s3://", "s3a://"), storage_options=options)
        assert (again.uri, again.count()) == (table.uri, 2)


class TestSecrets:
    def test_no_text_shows_one(self, table):
        shown = [
            repr(table),
            repr(table._snapshot.location),
            repr(vars(table)),
            table.scan(where="id > 1").explain(),
            repr(table.scan()),
            repr(table.scan().plan().leaves),
            str(table.partitions().to_pylist()),
            str(table.snapshots().to_pylist()),
            str(table.files().to_pylist()),
        ]
        assert not [text for text in shown if SECRET in text or "AKIAEXAMPLE" in text]

    def test_nor_does_an_error(self, table, options):
        lost = {**options, "endpoint": "http://127.0.0.1:9", "timeout": "1s"}
        said = [
            everything_said(lambda: phalanx.open("s3://lake/nothing", storage_options=options)),
            everything_said(lambda: phalanx.open(table.uri, storage_options=lost)),
            everything_said(lambda: phalanx.open(table.uri, 9, storage_options=options)),
            everything_said(lambda: phalanx.open("foo://lake/t", storage_options=options)),
            everything_said(lambda: phalanx.create(table.uri, SCHEMA, storage_options=options)),
            everything_said(lambda: table.append([{"nope": 1}])),
            everything_said(lambda: table.scan(where="nope = 1")),
            everything_said(lambda: phalanx.open(table.uri, storage_options={**options, "x": 1})),
        ]
        assert not [text for text in said if SECRET in text]
        assert f"StorageError: cannot reach {table.uri}: " in said[1]

    def test_nor_does_the_table(self, table, store):
        """Options are not written anywhere."""
        prefix = table.uri.removeprefix("s3://lake/") + "/"
        listed = store.list_objects_v2(Bucket="lake", Prefix=prefix)["Contents"]
        assert len(listed) > 5
        for entry in listed:
            found = store.get_object(Bucket="lake", Key=entry["Key"])["Body"].read()
            assert SECRET.encode() not in found
