import traceback
import uuid

import pytest

from phalanx.storage.location import Location
from phalanx.storage.shared_file import SharedFile, Unavailable
from tests import s3


@pytest.fixture(params=["s3", "gs", "az"])
def file(request):
    options = request.getfixturevalue(f"{request.param}_options")
    return SharedFile(Location(f"{request.param}://lake/{uuid.uuid4().hex}", options), "x")


def test_each_change_is_on_top_of_the_last(file):
    assert file.read() is None
    one = file.write(b"1", None)
    assert file.write(b"other", None) is None
    assert file.read() == one
    two = file.write(b"2", one)
    assert file.write(b"other", one) is None
    assert (file.read(), two.data) == (two, b"2")


@pytest.mark.parametrize("name", ["a b", "ü", "100%25", "key=value", "deep/er"])
def test_it_is_in_the_table_s_folder(s3_options, gcs_server, name):
    SharedFile(Location(f"s3://lake/{name}", s3_options), "x").write(b"1", None)
    SharedFile(Location(f"gs://lake/{name}", gcs_server.options), "x").write(b"2", None)
    store = s3.client(s3_options)
    key = f"{name.replace('%25', '%')}/x"
    assert store.get_object(Bucket="lake", Key=key)["Body"].read() == b"1"
    assert gcs_server.buckets["lake"][key].data == b"2"


def test_names_of_options_as_lance_has_them(s3_options):
    """Other spellings, and options that have nothing to do with reaching the store."""
    prefixed = {f"AWS_{name.upper()}": value for name, value in s3_options.items()}
    more = {"timeout": "30s", "client_max_retries": "3", "nonsense": "1", "s3_express": "false"}
    file = SharedFile(Location("s3://lake/prefixed", {**prefixed, **more}), "x")
    assert file.write(b"1", None) is not None


def test_options_come_from_the_environment(s3_options, monkeypatch):
    for name, value in s3_options.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
    file = SharedFile(Location("s3://lake/environment"), "x")
    assert file.write(b"1", None) is not None


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        ("s3://nobody/t", {}),
        ("s3://lake/t", {"endpoint": "http://127.0.0.1:9"}),
        ("s3://lake/t", {"allow_http": "false"}),
        ("s3://lake/t", {"allow_http": "perhaps"}),
        ("s3://lake/t", {"virtual_hosted_style_request": "perhaps"}),
        ("gs://lake/t", {"service_account_key": "hush-hush-do-not-tell"}),
        ("az://lake/t", {"account_name": "me", "account_key": "hush-hush-do-not-tell"}),
    ],
)
def test_a_failure_says_nothing_that_is_secret(s3_options, uri, options):
    base = s3_options if uri.startswith("s3") else {}
    file = SharedFile(Location(uri, {**base, **options}), "x")
    with pytest.raises(Unavailable) as caught:
        file.write(b"1", None)
    said = "".join(traceback.format_exception(caught.value))
    assert "hush" not in said
    assert "AKIAEXAMPLE" not in said


def test_stores_that_have_such_files(tmp_path):
    assert SharedFile.is_possible(Location("s3://lake/t"))
    assert SharedFile.is_possible(Location("gs://lake/t"))
    assert not SharedFile.is_possible(Location(tmp_path))
    assert not SharedFile.is_possible(Location("memory://lake/t"))
