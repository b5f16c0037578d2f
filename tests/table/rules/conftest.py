import pytest

from tests.table.damage import copy_of


@pytest.fixture
def table(tables_to_damage, root):
    return copy_of(tables_to_damage, "strong", root)
