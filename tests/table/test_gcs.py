"""Tables in Google Cloud Storage: here a server on this machine that speaks its protocol."""

import json

import numpy as np
import pytest

import phalanx
from phalanx.storage.location import Location
from phalanx.storage.shared_file import SharedFile
from tests import gcs
from tests.table.in_a_store import EARLIER, SCHEMA, InAStore, append_many, everything_said
from tests.transaction.processes import together


class TestGcs(InAStore):
    @pytest.fixture
    def store(self, gs_options):
        return "gs://lake", gs_options

    def test_writers_at_once(self, table, options, gcs_server):
        """Their commits are conditional, and so are the changes to the line that they stand in."""
        start = len(gcs_server.log)
        super().test_writers_at_once(table, options)
        name = table.uri.removeprefix("gs://lake/")
        writes = [
            (key.removeprefix(name), condition, status)
            for method, key, condition, status in gcs_server.log[start:]
            if method == "PUT" and key.startswith(name)
        ]
        versions = [write for write in writes if write[0].startswith("/__manifest/_versions/")]
        assert {condition for _, condition, _ in versions} == {"0"}
        made = [key for key, _, status in versions if status == 200]
        assert len(made) == len(set(made)) >= 12
        line = [condition for key, condition, _ in writes if key == "/.phalanx.lock"]
        assert line[0] == "0"
        assert None not in line
        assert any(int(condition) > 0 for condition in line)

    def test_large_files(self, table, options, gcs_server):
        """Those are written in parts."""
        start = len(gcs_server.log)
        table.add_column("noise", "binary")
        noise = np.random.default_rng(1).bytes(12 * 1024**2)
        table.append([{"id": 3, "country": "DE", "noise": noise}])
        assert "POST" in {method for method, *_ in gcs_server.log[start:]}
        again = phalanx.open(table.uri, storage_options=options)
        assert again.scan(where="id = 3").to_arrow()["noise"].to_pylist() == [noise]


class TestAStoreThatAsksForASlowerPace:
    """The real one takes about one write a second to an object."""

    @pytest.fixture
    def server(self):
        with gcs.running("lake") as server:
            yield server

    @pytest.fixture
    def table(self, server):
        options = {**server.options, "client_max_retries": "0"}
        return phalanx.create("gs://lake/t", SCHEMA, ["country"], storage_options=options)

    def test_writers_at_once(self, table, server):
        server.rest_seconds = 1.0
        together(*((append_many, table.uri, server.options, 100 * n, 2) for n in (1, 2, 3)))
        server.rest_seconds = 0.0
        found = sorted(table.refresh().to_arrow()["id"].to_pylist())
        assert found == [100 * n + i for n in (1, 2, 3) for i in range(2)]
        assert table.check().ok

    def test_one_that_asks_for_long(self, table, server, monkeypatch):
        """Lance gives up after four attempts, and Phalanx begins again."""
        change, refused = server._change, []

        def slow(bucket, name):
            if "__manifest/_versions/" in name and len(refused) < 6:
                refused.append(name)
                raise gcs.Refused("SlowDown")
            change(bucket, name)

        monkeypatch.setattr(server, "_change", slow)
        table.append(EARLIER)
        assert len(refused) == 6
        assert (table.version, table.count()) == (2, 2)
        assert table.check().ok


class TestCredentials:
    """Lance and the line of writers understand the same options and variables."""

    @pytest.fixture
    def uri(self, gs_options):
        uri = "gs://lake/credentials"
        if not phalanx.exists(uri, storage_options=gs_options):
            phalanx.create(uri, SCHEMA, storage_options=gs_options).append(EARLIER)
        return uri

    @pytest.fixture
    def file(self, gcs_server, tmp_path):
        (tmp_path / "key.json").write_text(gcs_server.service_account)
        return str(tmp_path / "key.json")

    @pytest.fixture
    def place(self, gcs_server):
        return {"base_url": gcs_server.url, "allow_http": "true"}

    def reaches(self, uri, options):
        found = phalanx.open(uri, storage_options=options).count()
        assert SharedFile(Location(uri, options), "none").read() is None
        return found == 2

    def test_options(self, uri, gcs_server, place, file):
        assert self.reaches(uri, {**place, "service_account": file})
        assert self.reaches(uri, {**place, "application_credentials": file})
        assert self.reaches(uri, {**place, "bearer_token": gcs_server.token})
        assert self.reaches(uri, {**place, "google_storage_token": gcs_server.token})
        key = {**json.loads(gcs_server.service_account), "gcs_base_url": gcs_server.url}
        options = {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(key), "google_allow_http": "true"}
        assert self.reaches(uri, options)

    @pytest.mark.parametrize(
        ("variable", "value"),
        [
            ("GOOGLE_SERVICE_ACCOUNT", "file"),
            ("GOOGLE_SERVICE_ACCOUNT_KEY", "service_account"),
            ("GOOGLE_APPLICATION_CREDENTIALS", "file"),
            ("GOOGLE_STORAGE_TOKEN", "token"),
        ],
    )
    def test_variables(self, uri, gcs_server, file, monkeypatch, variable, value):
        value = file if value == "file" else getattr(gcs_server, value)
        monkeypatch.setenv("GOOGLE_BASE_URL", gcs_server.url)
        monkeypatch.setenv("GOOGLE_ALLOW_HTTP", "true")
        monkeypatch.setenv(variable, value)
        assert self.reaches(uri, None)

    def test_what_is_wrong_with_them(self, uri, gcs_server, place, file):
        """It is said in one sentence, and is neither a missing table nor a damaged one."""
        key = gcs_server.service_account
        broken = json.dumps({**json.loads(key), "private_key": "hush-hush"})
        unread = "the key of the service account cannot be read"
        for options, sentence in (
            ({"service_account": "/nowhere/key.json"}, unread),
            ({"application_credentials": "/nowhere/key.json"}, unread),
            ({"service_account_key": "hush-hush"}, unread),
            ({"service_account_key": '{"private_key": "hush-hush"}'}, unread),
            ({"service_account_key": '{"disable_oauth": "hush-hush"}'}, unread),
            ({"service_account_key": broken}, unread),
            ({"service_account": file, "service_account_key": key}, "is given twice"),
            ({"bearer_token": "hush-hush"}, "refused the credentials (401 Unauthorized)"),
            ({"allow_http": "yess"}, "a storage option has a value that it cannot have"),
            ({"timeout": "soon"}, "a storage option has a value that it cannot have"),
            ({"proxy_url": "http://:"}, "is not a URL"),
        ):
            options = {**place, **options, "client_max_retries": "0"}
            for call in (
                lambda o: phalanx.open(uri, storage_options=o),
                lambda o: phalanx.create(uri, SCHEMA, storage_options=o),
            ):
                said = everything_said(lambda call=call, options=options: call(options))
                assert "StorageError: cannot " in said
                assert sentence in said
                assert "hush-hush" not in said

    def test_no_bucket(self, gs_options):
        with pytest.raises(phalanx.TableNotFound, match="the bucket does not exist"):
            phalanx.open("gs://nobody/t", storage_options=gs_options)
