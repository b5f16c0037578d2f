import pytest

import phalanx
from tests.table.operations.evolve.columns import ROWS, SCHEMA


@pytest.fixture
def table(root):
    return phalanx.create(root, SCHEMA, ["part"]).append(ROWS)
