"""What a plain Lance reader sees of a table: by commit, and after a vacuum."""

import datetime as dt

import lance
import pytest

from tests.table.aging import changed_table, leaf_of, vacuum
from tests.table.rows import ids, row


class TestAtCommit:
    def on_main(self, table):
        """The rows that a plain Lance reader sees."""
        found = []
        for uri in table.partitions()["uri"].to_pylist():
            found += lance.dataset(uri).to_table(columns=["id"])["id"].to_pylist()
        return sorted(found)

    def test_by_default_commits_do_not_show_on_main(self, strong):
        assert self.on_main(strong) == []

    def test_at_every_commit(self, strong):
        strong.set_properties({"anchor": "commit"})
        strong.append([row(5), row(6, "new")])
        assert self.on_main(strong) == [1, 2, 3, 4, 5, 6]
        strong.delete("id = 1")
        assert self.on_main(strong) == [2, 3, 4, 5, 6]
        strong.update({"n": "n + 1"})
        assert self.on_main(strong) == [2, 3, 4, 5, 6]
        assert ids(strong) == [2, 3, 4, 5, 6]
        # Stock cleanup is harmless then.
        for uri in strong.partitions()["uri"].to_pylist():
            lance.dataset(uri).cleanup_old_versions(
                older_than=dt.timedelta(0), delete_unverified=True
            )
        assert ids(strong) == [2, 3, 4, 5, 6]
        strong.append([row(7, "b"), row(8, "other")])
        assert ids(strong) == [2, 3, 4, 5, 6, 7, 8]
        # Also for a leaf that went and comes back, though its first version is gone.
        strong.delete("part = 'b'")
        strong.append([row(9, "b")])
        assert ids(strong) == [2, 4, 5, 6, 8, 9]
        assert self.on_main(strong) == [2, 4, 5, 6, 8, 9]


@pytest.fixture
def table(root):
    return changed_table(root)


class TestAtVacuum:
    def test_vacuum_publishes_the_leaves_on_main(self, table, root):
        assert lance.dataset(leaf_of(table, "a")["uri"]).count_rows() == 0
        vacuum(table)
        assert lance.dataset(leaf_of(table, "a")["uri"]).count_rows() == 2

    def test_unless_it_is_not_wanted(self, table, root):
        table.set_properties({"anchor": "never"})
        vacuum(table)
        assert lance.dataset(leaf_of(table, "a")["uri"]).count_rows() == 0
