import shutil

import pytest

import phalanx
from phalanx.table import optimize
from tests.table.optimize.files import SCHEMA, row


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """Two leaves of five files each, one of one file; rows are deleted in both."""
    table = phalanx.create(tmp_path_factory.mktemp("prepared") / "table", SCHEMA, ["part"])
    for k in range(5):
        table.append([row(10 * k + i, "ab"[i % 2], None if i == 4 else i / 2) for i in range(6)])
    table.append([row(100, None)])
    table.delete("id IN (0, 21, 43)")
    return table.uri


@pytest.fixture
def table(prepared, root):
    return phalanx.open(shutil.copytree(prepared, root))


@pytest.fixture
def meanwhile(monkeypatch):
    """Somebody else does something just before what was compacted is committed."""

    def arrange(*changes):
        left, real = list(changes), optimize.commit

        def commit(*args):
            if left:
                left.pop(0)()
            return real(*args)

        monkeypatch.setattr(optimize, "commit", commit)

    return arrange
