"""Tables in Azure Blob Storage, as far as a server on this machine goes."""

import pytest

from tests.table.in_a_store import InAStore


class TestAzure(InAStore):
    @pytest.fixture
    def store(self, az_options):
        return "az://lake", az_options
