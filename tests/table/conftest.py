import pytest

import phalanx
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
