"""What a plain Lance reader sees of a table: by commit, and after a vacuum."""

import datetime as dt

import lance
import pytest

import phalanx
from phalanx.table import anchor as anchoring
from tests.table.aging import changed_table, leaf_of, vacuum
from tests.table.rows import ROWS, SCHEMA, ids, row
from tests.transaction import sabotage


class TestAtCommit:
    def on_main(self, table):
        """The rows that a plain Lance reader sees."""
        found = []
        for uri in table.partitions()["uri"].to_pylist():
            found += lance.dataset(uri).to_table(columns=["id"])["id"].to_pylist()
        return sorted(found)

    def test_by_default_only_the_first_rows_show_on_main(self, strong):
        assert self.on_main(strong) == [1, 2, 3, 4]
        strong.append([row(5), row(6, "new")])
        strong.delete("id = 1")
        assert self.on_main(strong) == [1, 2, 3, 4, 6]

    def test_rows_that_the_same_transaction_changes_never_show(self, strong):
        with strong.transaction() as tx:
            tx.append([row(5, "new"), row(6, "new")])
            assert tx.count() == 6
            tx.delete("id = 5")
        assert ids(strong) == [1, 2, 3, 4, 6]
        assert self.on_main(strong) == [1, 2, 3, 4]

    def test_nothing_shows_if_that_is_not_wanted(self, root):
        table = phalanx.create(root, SCHEMA, ["part"], properties={"anchor": "never"})
        assert self.on_main(table.append(ROWS)) == []

    def test_setting_it_publishes_at_once(self, strong):
        strong.append([row(5)])
        strong.set_properties({"anchor": "commit"})
        assert self.on_main(strong) == [1, 2, 3, 4, 5]

    def test_also_among_other_changes(self, strong):
        with strong.transaction() as tx:
            tx.append([row(5), row(6, "new")])
            tx.set_properties({"anchor": "commit"})
        assert self.on_main(strong) == [1, 2, 3, 4, 5, 6]

    @pytest.mark.parametrize("value", ["maintenance", "never", None])
    def test_other_values_publish_nothing(self, strong, value):
        strong.append([row(5)])
        strong.set_properties({"anchor": value})
        assert self.on_main(strong) == [1, 2, 3, 4]

    def test_a_retry_after_a_crash_publishes(self, strong):
        strong.append([row(5)])
        step = "anchor.before"
        with sabotage.failing(step, "raise"), pytest.raises(OSError, match=step):
            strong.set_properties({"anchor": "commit"}, transaction_id="on")
        assert self.on_main(strong) == [1, 2, 3, 4]
        strong.set_properties({"anchor": "commit"}, transaction_id="on")
        assert self.on_main(strong) == [1, 2, 3, 4, 5]

    def test_a_commit_in_between_is_published_too(self, strong, monkeypatch):
        """The snapshot that is published is no longer the newest one: main must not go back."""
        real, others = anchoring.publish, iter([[row(5)]])

        def publish_late(*arguments, **options):
            for rows in others:
                phalanx.open(strong.uri).append(rows)
            return real(*arguments, **options)

        monkeypatch.setattr(anchoring, "publish", publish_late)
        strong.set_properties({"anchor": "commit"})
        assert self.on_main(strong) == [1, 2, 3, 4, 5]

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


class TestWithoutPublishing:
    """Plain Lance reads a leaf at the version that the table is at."""

    @pytest.fixture(params=["strong", "weak"])
    def strong_or_weak(self, request, root):
        return phalanx.create(root, SCHEMA, ["part"], transactions=request.param).append(ROWS)

    def test_a_leaf_of_a_plan(self, strong_or_weak):
        leaf = strong_or_weak.scan(where="part = 'a' AND id = 1").plan().leaves[0]
        dataset = leaf.open()
        assert isinstance(dataset, lance.LanceDataset)
        assert sorted(dataset.to_table()["id"].to_pylist()) == [1, 2]
        assert leaf.version is None or dataset.version == leaf.version

    def test_stays_at_its_version(self, strong):
        leaf = strong.scan(where="part = 'a'").plan().leaves[0]
        strong.delete("id = 1")
        assert leaf.open().count_rows() == 2

    def test_a_partition(self, strong_or_weak):
        found = []
        for leaf in strong_or_weak.partitions().to_pylist():
            dataset = lance.dataset(leaf["uri"], version=leaf["version"])
            found += dataset.to_table()["id"].to_pylist()
        assert sorted(found) == [1, 2, 3, 4]


@pytest.fixture
def table(root):
    return changed_table(root)


class TestAtVacuum:
    def on_main(self, table):
        return sorted(lance.dataset(leaf_of(table, "a")["uri"]).to_table()["id"].to_pylist())

    def test_vacuum_publishes_the_leaves_on_main(self, table, root):
        assert self.on_main(table) == [1, 2]
        vacuum(table)
        assert self.on_main(table) == [4, 5]

    def test_unless_it_is_not_wanted(self, table, root):
        table.set_properties({"anchor": "never"})
        vacuum(table)
        assert self.on_main(table) == [1, 2]
