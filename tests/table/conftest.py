import pytest

import phalanx
from tests.table import damage
from tests.table.rows import ROWS, SCHEMA


@pytest.fixture(params=["strong", "weak"])
def table(request, root):
    table = phalanx.create(root, SCHEMA, ["part"], transactions=request.param)
    return table.append(ROWS)


@pytest.fixture
def strong(root):
    return phalanx.create(root, SCHEMA, ["part"]).append(ROWS)


@pytest.fixture
def weak(root):
    return phalanx.create(root, SCHEMA, ["part"], transactions="weak").append(ROWS)


@pytest.fixture(scope="session")
def tables_to_damage(tmp_path_factory):
    """Tables to copy: a strong one with a tag, one without, and a weak one."""
    folder = tmp_path_factory.mktemp("tables")
    damage.create(folder / "strong").tag("kept", 2)
    damage.create(folder / "plain")
    damage.create(folder / "weak", "weak")
    return folder
