import pytest


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Snapshots are cached in a folder of the test run, not in the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PHALANX_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def root(tmp_path):
    """Where a test makes its table."""
    return tmp_path / "table"
