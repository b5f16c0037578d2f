"""Durable commits: what is written is synced to disk."""

import os

import pyarrow as pa
import pytest

import phalanx
from phalanx.storage import fsync
from phalanx.storage.manifest import ManifestVersion
from phalanx.transaction import commit
from tests.table.rows import SCHEMA, row


def _files(folder):
    return [os.path.join(path, name) for path, _, names in os.walk(folder) for name in names]


class TestDurable:
    @pytest.fixture
    def synced(self, monkeypatch):
        paths = []
        real = fsync._fsync
        monkeypatch.setattr(fsync, "_fsync", lambda path: (paths.append(path), real(path)))
        return paths

    @pytest.mark.parametrize("how", ["option", "variable"])
    def test_all_that_was_written_is_synced(self, table, root, synced, monkeypatch, how):
        before = set(_files(root))
        if how == "variable":
            monkeypatch.setenv("PHALANX_DURABLE", "1")
        table.append([row(5), row(6, "new")], durable=True if how == "option" else None)
        new = {path for path in set(_files(root)) - before if not path.endswith(".lock")}
        assert len(new) > 6
        assert new <= set(synced)
        assert {os.path.dirname(path) for path in new} <= set(synced)

    def test_before_the_swap(self, strong, root, synced, monkeypatch):
        """What a manifest names is on disk before it is."""
        swap, at_the_swap = ManifestVersion.swap, set()

        def recording(self, *arguments):
            at_the_swap.update(synced)
            return swap(self, *arguments)

        monkeypatch.setattr(ManifestVersion, "swap", recording)
        before = set(_files(root))
        strong.append([row(5)], durable=True)
        new = {path for path in set(_files(root)) - before if not path.endswith(".lock")}
        assert {path for path in new if "__manifest" not in path} <= at_the_swap
        assert {path for path in new if "__manifest" in path} <= set(synced) - at_the_swap

    @pytest.mark.parametrize("anchor", ["never", "commit"])
    def test_what_follows_the_swap(self, strong, root, synced, anchor):
        """The schema for other clients, compaction, anchors: the newest files are theirs."""
        strong.set_properties({"anchor": anchor})
        for n in range(commit._MOST_FRAGMENTS):
            before = set(_files(root))
            with strong.transaction(durable=True) as tx:
                tx.add_column(f"more{n}", pa.int64())
                tx.append([row(5)])
            new = {path for path in set(_files(root)) - before if not path.endswith(".lock")}
            assert new <= set(synced)

    @pytest.mark.parametrize("transactions", ["strong", "weak"])
    def test_a_new_table(self, tmp_path, synced, monkeypatch, transactions):
        """With the folders that were made for it."""
        monkeypatch.setenv("PHALANX_DURABLE", "1")
        root = tmp_path / "db" / "t"
        phalanx.create(root, SCHEMA, ["part"], transactions=transactions)
        made = _files(root)
        assert made
        assert {*made} <= {*synced}
        folders = {folder for folder, _, _ in os.walk(tmp_path)}
        assert {str(tmp_path), str(root), str(root / "__manifest")} <= folders
        assert folders <= {*synced}

    def test_not_unless_it_is_asked_for(self, strong, synced):
        strong.append([row(5)])
        strong.append([row(6)], durable=False)
        assert synced == []
