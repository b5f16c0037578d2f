"""What tables do in every object store. A test of one store inherits it, and says where that is."""

import json
import traceback
import uuid

import pyarrow as pa
import pytest

import phalanx
from tests.transaction.processes import together

SCHEMA = pa.schema([("id", pa.int64()), ("country", pa.string())])
EARLIER = [{"id": 1, "country": "a/b=$ü"}, {"id": 2, "country": None}]


class InAStore:
    """Needs the fixture `store`: the URI of a bucket, and its storage options."""

    @pytest.fixture
    def options(self, store):
        return store[1]

    @pytest.fixture
    def table(self, store, options):
        uri = f"{store[0]}/{uuid.uuid4().hex}"
        table = phalanx.create(uri, SCHEMA, ["country"], storage_options=options)
        return table.append(EARLIER)

    def test_every_change(self, table, options):
        table.append([{"id": i, "country": "DE"} for i in range(3, 9)])
        assert table.delete("id = 3") == 1
        assert table.update({"country": "'FR'"}, "id = 4") == 1
        changed = [{"id": 5, "country": "IT"}, {"id": 9, "country": "DE"}]
        assert table.merge(changed, ["id"]).updated == 1
        table.optimize()
        again = phalanx.open(table.uri, storage_options=options)
        assert sorted(again.to_arrow()["id"].to_pylist()) == [1, 2, 4, 5, 6, 7, 8, 9]
        assert again.count("country = 'a/b=$ü'") == 1
        scan = again.scan(where="country = 'DE' AND id > 6")
        assert sorted(scan.to_arrow()["id"].to_pylist()) == [7, 8, 9]
        assert (scan.plan().selected, scan.plan().total) == (1, 5)
        earlier = phalanx.open(table.uri, version=2, storage_options=options)
        assert earlier.to_arrow().sort_by("id").to_pylist() == EARLIER
        assert again.vacuum(older_than="0", force=True)
        assert again.check().ok
        again.drop()
        with pytest.raises(phalanx.TableNotFound):
            phalanx.open(table.uri, storage_options=options)

    def test_writers_at_once(self, table, options):
        together(*((append_many, table.uri, options, 100 * n) for n in range(1, 4)))
        table.refresh()
        expected = [1, 2, *(100 * n + i for n in range(1, 4) for i in range(4))]
        assert sorted(table.to_arrow()["id"].to_pylist()) == expected
        assert table.snapshots()["version"].to_pylist() == list(range(1, 15))
        assert table.check().ok

    def test_secrets_stay_secret(self, table, store, options, caplog):
        root, _ = store
        secrets = secrets_of(options)
        said = [
            everything_said(lambda: phalanx.open(f"{root}/none", storage_options=options)),
            everything_said(lambda: phalanx.create(table.uri, SCHEMA, storage_options=options)),
            everything_said(lambda: phalanx.open(table.uri, 9, storage_options=options)),
            everything_said(lambda: phalanx.open(table.uri, storage_options={**options, "x": 1})),
            everything_said(lambda: table.append([{"nope": 1}])),
            *map(repr, (table, vars(table), table._snapshot.location, table.scan())),
            table.scan(where="id > 1").explain(),
            str(table.files().to_pylist()),
            caplog.text,
        ]
        assert secrets
        assert not [text for text in said if any(secret in text for secret in secrets)]


def append_many(uri, options, first, turns=4):
    table = phalanx.open(uri, storage_options=options)
    for i in range(turns):
        table.append([{"id": first + i, "country": "DE"}])


def secrets_of(options):
    """What must not be shown of storage options: also parts of a key in JSON, line by line."""
    texts = [value for name, value in options.items() if "key" in name]
    for text in texts[:]:
        if text.startswith("{"):
            key = json.loads(text)["private_key"]
            texts += [key, repr(key), *key.splitlines()[1:-1]]
    return texts


def everything_said(action):
    """What a user sees of an error: the message, and the traceback with what led to it."""
    try:
        action()
    except Exception as error:
        return "".join(traceback.format_exception(error))
    raise AssertionError("it did not fail")
