import pytest

import phalanx
from phalanx.cli import main
from tests.events import SCHEMA, rows


@pytest.fixture
def run(capsys):
    """Runs a command line; returns what it exits with, its output and its errors."""

    def _run(*words):
        code = main([str(word) for word in words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return _run


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    """A table that no test changes: three versions, two specs, 18 + 3 rows."""
    uri = tmp_path_factory.mktemp("cli") / "events"
    table = phalanx.create(uri, SCHEMA, ["months(ts)", "country"])
    table.append(rows(18))
    table.evolve_partitioning(["country"])
    return table.append(rows(3, 108))
