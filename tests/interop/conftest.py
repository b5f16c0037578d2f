import pytest

from tests.interop.trees import GOLDEN, golden


@pytest.fixture
def events(root):
    """The tree of section 3.2, without a manifest."""
    return golden(root, GOLDEN[0], with_manifest=False)
