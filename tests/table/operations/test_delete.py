import pytest

from phalanx import InvalidInput
from phalanx.storage.leaf import Leaf
from phalanx.storage.location import Location
from phalanx.storage.manifest import ManifestVersion
from tests.table.rows import ids, row


class TestDelete:
    def test_rows(self, table):
        assert table.delete("id IN (1, 3, 77)") == 2
        assert ids(table) == [2, 4]
        assert table.version == 3

    def test_all_rows(self, table):
        assert table.delete("TRUE") == 4
        assert ids(table) == []
        assert table.append([row(5)]).count() == 1

    def test_nothing(self, table):
        assert table.delete("id = 77") == 0
        assert ids(table) == [1, 2, 3, 4]

    def test_null_is_neither_true_nor_false(self, table):
        assert table.delete("part <> 'a'") == 1
        assert table.delete("part IS NULL") == 1
        assert ids(table) == [1, 2]

    def test_twice_from_the_same_files(self, table):
        assert table.delete("id = 1") == 1
        assert table.delete("id <= 2") == 1
        assert ids(table) == [3, 4]

    def test_the_last_row_takes_its_partition_along(self, strong):
        strong.delete("id = 1")
        strong.delete("id = 2")
        assert strong.partitions()["part"].to_pylist() == [None, "b"]
        manifest = ManifestVersion(Location(strong.uri))
        left = manifest._read(["object_id"], "object_type <> 'transaction'")[
            "object_id"
        ].to_pylist()
        assert len(left) == 2 + 2 * 3  # the head, the spec; namespace, leaf and version of each

    def test_whole_partitions_are_not_opened(self, strong, monkeypatch):
        def refuse(leaf, *_):
            raise AssertionError(f"{leaf.uri} was opened")

        with monkeypatch.context() as patch:
            for name in ("open", "create", "delete", "scan", "count"):
                patch.setattr(Leaf, name, refuse)
            assert strong.delete("part IN ('a', 'b')") == 3
            assert strong.delete("part IS NULL") == 1
        assert ids(strong) == []

    def test_only_the_partitions_in_question_are_opened(self, strong, monkeypatch):
        opened = set()
        real = Leaf.delete

        def watch(leaf, *args):
            opened.add(leaf.uri)
            return real(leaf, *args)

        monkeypatch.setattr(Leaf, "delete", watch)
        strong.delete("part = 'a' AND id = 1 OR part = 'b'")
        assert len(opened) == 1

    @pytest.mark.parametrize(
        ("where", "message"),
        [
            (None, "delete takes a filter; to delete every row, write 'TRUE'"),
            ("nope = 1", "unknown column"),
            ("id = ", "filter"),
            ("id = 'x'", "cannot compare"),
        ],
    )
    def test_a_filter_that_makes_no_sense(self, table, where, message):
        with pytest.raises(InvalidInput, match=message):
            table.delete(where)
        assert (table.version, ids(table)) == (2, [1, 2, 3, 4])
