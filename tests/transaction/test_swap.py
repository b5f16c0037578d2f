"""The one place that swaps the head: what it does when a swap is lost, or its reply."""

import datetime as dt

import pyarrow as pa
import pytest

import phalanx
from phalanx import ConflictError
from phalanx.storage.manifest import ManifestVersion, SwapLost, SwapUnknown

SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.string())])
ALL = dt.timedelta(0)


@pytest.fixture
def table(root):
    table = phalanx.create(root, SCHEMA, ["k"])
    for id in range(4):
        table.append([{"id": id, "k": "ab"[id % 2]}])
    return table


def after_landing(monkeypatch, error):
    """Let the next swap land, and then fail."""
    real = ManifestVersion.swap

    def swap(self, update):
        monkeypatch.setattr(ManifestVersion, "swap", real)
        real(self, update)
        raise error

    monkeypatch.setattr(ManifestVersion, "swap", swap)


@pytest.mark.parametrize("error", [OSError("the reply was lost"), SwapUnknown("twice")])
class TestLostReplies:
    """What has landed is not done again, and is reported as done."""

    def test_append(self, table, monkeypatch, error):
        after_landing(monkeypatch, error)
        table.append([{"id": 9, "k": "c"}])
        assert (table.version, table.count()) == (6, 5)

    def test_expire(self, table, monkeypatch, error):
        after_landing(monkeypatch, error)
        report = table.expire_snapshots(ALL)
        assert report.snapshots == (1, 2, 3, 4)
        assert table.snapshots()["version"].to_pylist() == [5, 6]

    def test_vacuum(self, table, monkeypatch, error):
        after_landing(monkeypatch, error)
        report = table.vacuum(ALL, force=True)
        assert report.snapshots == (1, 2, 3, 4)
        assert table.version == 6
        assert table.check().ok

    def test_make_strong(self, root, monkeypatch, error):
        weak = phalanx.create(root, SCHEMA, ["k"], transactions="weak")
        weak.append([{"id": 1, "k": "a"}])
        after_landing(monkeypatch, error)
        weak.make_strong()
        assert weak.snapshots()["operation"].to_pylist().count("make strong") == 1
        assert weak.count() == 1
        assert weak.check().ok


class TestLostSwaps:
    def test_they_are_tried_again(self, table, monkeypatch):
        real, lost = ManifestVersion.swap, []

        def swap(self, update):
            if len(lost) < 3:
                lost.append(1)
                raise SwapLost("another one")
            return real(self, update)

        monkeypatch.setattr(ManifestVersion, "swap", swap)
        assert table.expire_snapshots(ALL).snapshots == (1, 2, 3, 4)
        assert len(lost) == 3

    @pytest.mark.parametrize("call", ["expire_snapshots", "vacuum", "append"])
    def test_and_given_up_with_one_message(self, table, monkeypatch, call):
        def swap(self, update):
            raise SwapLost("another one")

        monkeypatch.setattr(ManifestVersion, "swap", swap)
        monkeypatch.setattr("phalanx.transaction.swap.PATIENCE_SECONDS", 0.05)
        calls = {
            "expire_snapshots": lambda: table.expire_snapshots(ALL),
            "vacuum": lambda: table.vacuum(ALL, force=True),
            "append": lambda: table.append([{"id": 9, "k": "c"}]),
        }
        with pytest.raises(
            ConflictError, match=r"lost to others \d+ times in .*: nothing was writ"
        ):
            calls[call]()
