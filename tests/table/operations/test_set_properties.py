import pytest

import phalanx
from phalanx import InvalidInput
from tests.table.rows import SCHEMA


class TestSetProperties:
    def test_properties(self, root):
        table = phalanx.create(root, SCHEMA, ["part"], properties={"anchor": "never", "x": "y"})
        assert table.properties == {"anchor": "never", "x": "y"}
        table.set_properties({"x": None, "z": "1"})
        assert phalanx.open(root).properties == {"anchor": "never", "z": "1"}
        with pytest.raises(InvalidInput, match="anchor is one of maintenance, commit, never"):
            table.set_properties({"anchor": "always"})
        with pytest.raises(InvalidInput, match="properties are strings"):
            table.set_properties({"x": 1})
        assert table.version == 2
        with table.transaction() as tx:
            tx.set_properties({"owner": "a", "z": None})
            tx.set_properties({"team": "b", "x": "1"})
            tx.set_properties({"x": None})
        assert phalanx.open(root).properties == {"anchor": "never", "owner": "a", "team": "b"}
