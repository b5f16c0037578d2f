"""Versions of other clients that become the table's own."""

import lance
import pyarrow as pa
import pytest

from phalanx.storage.files import DETACHED
from phalanx.storage.location import Location
from phalanx.storage.main_branch import MainBranch

FOLDER = "0badcafe_v1$dataset"


@pytest.fixture
def uri(tmp_path):
    for number in range(3):
        lance.write_dataset(pa.table({"id": [number]}), tmp_path / FOLDER, mode="append")
    return str(tmp_path / FOLDER)


@pytest.fixture
def main(uri, tmp_path):
    return MainBranch(Location(tmp_path), FOLDER)


def ids(dataset):
    return dataset.to_table()["id"].to_pylist()


class TestTakeOver:
    @pytest.mark.parametrize("version", [None, 3])
    def test_the_newest_is_marked(self, main, uri, version):
        assert len(main.foreign_commits()) == 2
        handle = main.take_over(version)
        assert (handle.version, ids(handle)) == (4, [0, 1, 2])
        assert main.foreign_commits() == []

    def test_one_that_is_known_is_not_marked_again(self, main):
        assert main.take_over(main.take_over(None).version).version == 4

    def test_the_first_needs_no_mark(self, tmp_path):
        lance.write_dataset(pa.table({"id": [7]}), tmp_path / FOLDER)
        assert MainBranch(Location(tmp_path), FOLDER).take_over(1).version == 1

    def test_main_shows_an_earlier_one_again(self, main, uri):
        handle = main.take_over(2)
        assert handle.version >= DETACHED
        assert ids(handle) == ids(lance.dataset(uri)) == [0, 1]
        assert main.foreign_commits() == []
        assert ids(lance.dataset(uri, version=3)) == [0, 1, 2], "nothing is removed"

    def test_a_detached_one(self, main, uri):
        dataset = lance.dataset(uri)
        fragments = lance.fragment.write_fragments(pa.table({"id": [9]}), dataset)
        detached = lance.LanceDataset.commit(
            dataset,
            lance.LanceOperation.Append(fragments),
            read_version=dataset.version,
            detached=True,
        )
        assert main.take_over(detached.version).version == detached.version
        assert ids(lance.dataset(uri)) == [0, 1, 2, 9]
        assert main.foreign_commits() == []

    def test_a_commit_in_between_is_not_taken_in(self, main, uri, monkeypatch):
        real = MainBranch._sealed

        def late(self, handle):
            lance.write_dataset(pa.table({"id": [8]}), uri, mode="append")
            return real(self, handle)

        monkeypatch.setattr(MainBranch, "_sealed", late)
        assert ids(main.take_over(3)) == [0, 1, 2]
