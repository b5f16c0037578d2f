import logging
from pathlib import Path

import pytest

from tests import azure, s3

#: What takes longest comes first, so that at the end nobody waits for one long file.
_ORDER = ("spark/deployments", "transaction", "test_docs.py", "spark", "table", "storage", "")


def pytest_collection_modifyitems(items):
    def place(item):
        path = item.path.relative_to(Path(__file__).parent).as_posix()
        return next(number for number, start in enumerate(_ORDER) if path.startswith(start))

    items.sort(key=place)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Snapshots are cached in a folder of the test run, not in the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PHALANX_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def quick_java():
    """Every Spark of the test run, also in other processes, takes half of its usual CPU time.

    The better compiler, and a collector with threads of its own, pay only in longer runs.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        yield


@pytest.fixture
def root(tmp_path):
    """Where a test makes its table."""
    return tmp_path / "table"


@pytest.fixture(scope="session")
def s3_options():
    """An object store on this machine, as storage options. It has a bucket `lake`."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server.start()
    host, port = server.get_host_and_port()
    options = {
        "access_key_id": "AKIAEXAMPLE",
        "secret_access_key": "hush-hush-do-not-tell",
        "region": "us-east-1",
        "endpoint": f"http://{host}:{port}",
        "allow_http": "true",
    }
    store = s3.client(options)
    store.create_bucket(Bucket="lake")
    yield options
    server.stop()


@pytest.fixture(scope="session")
def gcs_server():
    """Google Cloud Storage on this machine. It has a bucket `lake`."""
    from tests import gcs

    with gcs.running("lake") as server:
        yield server


@pytest.fixture(scope="session")
def gs_options(gcs_server):
    """The storage options that reach it: those of a service account."""
    return gcs_server.options


@pytest.fixture(scope="session")
def az_options(tmp_path_factory):
    """Azure Blob Storage on this machine, as storage options. It has a container `lake`."""
    with azure.running(tmp_path_factory.mktemp("azure"), "lake") as options:
        yield options
