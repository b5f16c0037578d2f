import json
from pathlib import Path

import pytest

from phalanx import InvalidInput
from phalanx.storage import object_store
from phalanx.storage.location import Location


class TestWhere:
    def test_a_path_becomes_absolute(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        location = Location("lake/events/")
        assert location.uri == str(tmp_path / "lake" / "events")
        assert location.is_local
        assert location.path == tmp_path / "lake" / "events"

    def test_it_may_be_a_path_object(self, tmp_path):
        assert Location(Path(tmp_path)).uri == str(tmp_path)

    def test_a_file_uri_is_a_path(self):
        location = Location("file:///data/my%20table")
        assert location.uri == "/data/my table"
        assert location.is_local

    @pytest.mark.parametrize("uri", ["s3://", "s3:///", "s3:///events", "gs://", "memory://"])
    def test_an_object_store_without_a_bucket(self, uri):
        with pytest.raises(InvalidInput, match="names no bucket"):
            Location(uri)

    @pytest.mark.parametrize("uri", ["s3://lake/a#b", "gs://lake/a?b/c", "az://lake/a#"])
    def test_an_object_store_whose_uri_would_be_cut(self, uri):
        with pytest.raises(InvalidInput, match="write them as %23 and %3F"):
            Location(uri)

    def test_an_object_store(self):
        location = Location("s3://lake/events/")
        assert location.uri == "s3://lake/events"
        assert location.path is None
        assert location.manifest == "s3://lake/events/__manifest"

    @pytest.mark.parametrize("uri", ["", None, b"lake", 5])
    def test_anything_else_is_refused(self, uri):
        with pytest.raises(InvalidInput, match="path or URI"):
            Location(uri)


class TestChildren:
    def test_a_folder_inside(self):
        assert Location("s3://lake/t").child("a1_v1$x$dataset") == "s3://lake/t/a1_v1$x$dataset"

    def test_a_folder_further_inside(self, tmp_path):
        path = "a=%2F#?/b=ü.lance"
        assert Location("s3://lake/t").child(path) == "s3://lake/t/a=%252F%23%3F/b=%C3%BC.lance"
        assert Location(tmp_path).child(path) == f"{tmp_path}/{path}"

    def test_a_folder_inside_of_a_leaf(self):
        """A branch of a leaf is inside of the leaf."""
        assert Location("s3://lake/t").child("leaf/tree/dev") == "s3://lake/t/leaf/tree/dev"

    @pytest.mark.parametrize(
        "name",
        [
            *("", ".", "..", "a/../b", "a/..", "./a", "a//b", "a/", "/etc"),
            *("a\\b", "a/b\\..", "\0", "a/\0"),
        ],
    )
    def test_none_leads_out_of_the_table(self, name):
        with pytest.raises(InvalidInput, match="does not lie inside"):
            Location("s3://lake/t").child(name)


OPTIONS = {"access_key_id": "AKIA1", "secret_access_key": "hush", "region": "eu-west-1"}


class TestOptions:
    def test_they_are_never_shown(self):
        location = Location("s3://lake/t", OPTIONS)
        assert "hush" not in repr(location) + str(location)

    def test_secrets_are_cut_from_reasons(self):
        location = Location("s3://lake/t", OPTIONS)
        error = OSError("LanceError(IO): signed AKIA1 with hush in eu-west-1, /rust/src/x.rs:1\nat")
        assert location.reason(error) == "signed *** with *** in eu-west-1"

    def test_so_is_what_a_key_in_json_holds(self):
        key = json.dumps({"private_key": "-----BEGIN\nhush-hush", "client_email": "me@there"})
        location = Location("gs://lake/t", {"service_account_key": key})
        for text in (key, repr(key), json.dumps({"key": key}), "in -----BEGIN\nhush-hush"):
            assert "hush" not in object_store.without_secrets(text, location.options)
        error = OSError("me@there has signed with -----BEGIN\\nhush-hush")
        assert location.reason(error) == "me@there has signed with ***"

    def test_they_are_copied(self):
        options = dict(OPTIONS)
        location = Location("s3://lake/t", options)
        options.clear()
        assert location.options == OPTIONS

    def test_they_must_be_strings(self):
        with pytest.raises(InvalidInput, match="strings to strings: 'timeout' has a int"):
            Location("s3://lake/t", {"timeout": 5})

    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ("region=x", "a dict of strings, not a str"),
            ({"google_storage_token": "hush\n"}, "line break"),
            ({"endpoint": "127.0.0.1:9"}, "begin it with http://"),
            ({"base_url": "localhost"}, "begin it with http://"),
        ],
    )
    def test_what_would_crash_lance_is_refused(self, options, reason):
        with pytest.raises(InvalidInput, match=reason) as refused:
            Location("gs://lake/t", options)
        assert "hush" not in str(refused.value)

    def test_a_choice_of_an_endpoint_is_not_an_address(self):
        Location("az://lake/t", {"azure_use_fabric_endpoint": "true"})

    def test_a_password_in_an_address_is_not_shown(self):
        location = Location("gs://lake/t", {"base_url": "http://me:hush@127.0.0.1:9"})
        text = "Error performing GET http://me:hush@127.0.0.1:9/lake?x=a@b"
        assert location.reason(OSError(text)) == (
            "Error performing GET http://***@127.0.0.1:9/lake?x=a@b"
        )

    def test_another_name_of_google_cloud_storage(self):
        with pytest.raises(InvalidInput, match="gs://lake/t"):
            Location("gcs://lake/t")
