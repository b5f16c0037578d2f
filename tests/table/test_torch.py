"""Scans as datasets of PyTorch. They run where PyTorch is installed: its wheel takes gigabytes."""

import json
import math
import pickle
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

import phalanx
from phalanx.errors import InvalidInput, PhalanxError

torch = pytest.importorskip("torch", reason="pip install 'phalanx[torch]' to run these")
from torch.utils.data import DataLoader  # noqa: E402

from phalanx.table import torch_dataset  # noqa: E402

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.string()),
        ("x", pa.float32()),
        ("flag", pa.bool_()),
        ("v", pa.list_(pa.float32(), 4)),
        ("n", pa.int32()),
    ]
)
#: Rows by partition: one has most of them, and is cut among readers.
SIZES = {"a": 3, "b": 40, "c": 57, "d": 600, "e": 1, "f": 99}


def rows(start, part, count):
    ids = np.arange(start, start + count)
    return pa.table(
        {
            "id": ids,
            "part": pa.array([part] * count),
            "x": pa.array(ids / 2, pa.float32()),
            "flag": pa.array(ids % 2 == 0),
            "v": pa.array([[id, 0, 0, 1] for id in ids.tolist()], SCHEMA.field("v").type),
            "n": pa.array([None if id % 7 == 0 else id for id in ids.tolist()], pa.int32()),
        }
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    table = phalanx.create(tmp_path_factory.mktemp("torch") / "t", SCHEMA, ["part"])
    start = 0
    for part, count in SIZES.items():
        # Several files each, so that a large leaf can be cut.
        for size in [count // 3, count // 3, count - 2 * (count // 3)]:
            if size:
                table.append(rows(start, part, size))
                start += size
    table.delete("id % 50 = 13")
    return table


@pytest.fixture(scope="module")
def ids(table):
    return sorted(table.scan("id").to_arrow()["id"].to_pylist())


def ids_of(batches):
    return [id for batch in batches for id in batch["id"].tolist()]


class TestRows:
    def test_batches_have_all_rows_once_in_the_order_of_the_scan(self, table):
        batches = list(table.scan(["id", "x"]).to_torch(batch_size=64))
        assert [len(batch["id"]) for batch in batches[:-1]] == [64] * (len(batches) - 1)
        assert ids_of(batches) == table.scan("id").to_arrow()["id"].to_pylist()

    @pytest.mark.parametrize("shuffle", [False, True])
    @pytest.mark.parametrize("world_size", [1, 2, 3, 20])
    def test_ranks_share_the_rows(self, table, ids, world_size, shuffle):
        parts = [
            ids_of(
                table.scan(["id"]).to_torch(50, shuffle=shuffle, rank=rank, world_size=world_size)
            )
            for rank in range(world_size)
        ]
        assert sorted(id for part in parts for id in part) == ids

    def test_ranks_are_balanced_though_one_leaf_has_most_rows(self, table, ids):
        counts = [
            len(ids_of(table.scan(["id"]).to_torch(rank=rank, world_size=2))) for rank in range(2)
        ]
        assert sum(counts) == len(ids)
        assert max(counts) < 0.6 * len(ids)

    def test_a_filter_prunes_and_is_checked(self, table, ids):
        dataset = table.scan(["id"], "part IN ('b', 'd') AND id > 100").to_torch(10)
        wanted = table.scan("id", "part IN ('b', 'd') AND id > 100").to_arrow()["id"].to_pylist()
        assert sorted(ids_of(dataset)) == sorted(wanted)
        assert len(list(table.scan(where="part = 'none'").to_torch())) == 0

    def test_it_reads_the_snapshot_of_the_scan(self, root):
        table = phalanx.create(root, SCHEMA, ["part"]).append(rows(0, "a", 10))
        dataset = pickle.loads(pickle.dumps(table.scan(["id"]).to_torch()))
        table.append(rows(10, "a", 10))
        table.delete("id < 5")
        assert ids_of(dataset) == list(range(10))

    def test_columns_that_files_do_not_hold(self, root):
        table = phalanx.create(root, SCHEMA, ["part"], materialize_partition_columns=False)
        table.append(rows(0, "a", 3)).add_column("extra", pa.int64(), default=7)
        (batch,) = table.scan(["part", "extra"], "part = 'a'").to_torch()
        assert batch["part"] == ["a"] * 3
        assert batch["extra"].tolist() == [7] * 3


class TestShuffling:
    def test_it_mixes_leaves_and_can_be_repeated(self, table, ids):
        def order(seed, epoch):
            dataset = table.scan(["id"]).to_torch(32, shuffle=True, seed=seed)
            dataset.set_epoch(epoch)
            return ids_of(dataset)

        first = order(1, 0)
        assert sorted(first) == ids
        assert first == order(1, 0)
        assert first != order(2, 0)
        assert first != order(1, 1)
        parts = table.scan(["id", "part"]).to_arrow().to_pydict()
        part_of = dict(zip(parts["id"], parts["part"], strict=True))
        assert len({part_of[id] for id in first[:100]}) > 2

    def test_windows_lose_no_row(self, table, ids, monkeypatch):
        monkeypatch.setattr(torch_dataset, "_WINDOW_ROWS", 70)
        assert sorted(ids_of(table.scan(["id"]).to_torch(32, shuffle=True))) == ids


class TestTensors:
    def test_types(self, table):
        columns = ["id", "part", "x", "flag", "v"]
        (batch,) = table.scan(columns, "part = 'a'").to_torch()
        assert (batch["id"].dtype, batch["x"].dtype) == (torch.int64, torch.float32)
        assert batch["flag"].tolist() == [True, False, True]
        assert batch["v"].shape == (3, 4)
        assert batch["v"][:, 0].tolist() == [0, 1, 2]
        assert batch["part"] == ["a", "a", "a"]

    def test_null_is_refused_where_a_tensor_has_no_place_for_it(self, table):
        with pytest.raises(InvalidInput, match='"n IS NOT NULL"'):
            list(table.scan(["n"]).to_torch())
        (batch,) = table.scan(["n"], "n IS NOT NULL AND part = 'a'").to_torch()
        assert batch["n"].tolist() == [1, 2]

    @pytest.mark.parametrize(
        ("type", "values", "shape"),
        [
            (pa.uint64(), [1, 2**64 - 1, 3], (2,)),
            (pa.float16(), [0.5, -0.0, 3], (2,)),
            (pa.bool_(), [True, False, True], (2,)),
            (pa.list_(pa.int8(), 2), [[1, 2], [3, 4], [5, 6]], (2, 2)),
            (pa.list_(pa.list_(pa.float64(), 1), 2), [[[1], [2]]] * 3, (2, 2, 1)),
            (pa.list_(pa.float32(), 0), [[]] * 3, (2, 0)),
        ],
    )
    def test_a_slice_has_its_own_values(self, type, values, shape):
        tensor = torch_dataset.tensor(pa.array(values, type).slice(1), "c")
        assert tuple(tensor.shape) == shape
        assert tensor.tolist() == values[1:]

    def test_numbers_are_not_copied(self):
        column = pa.array([1.0, 2.0, 3.0])
        tensor = torch_dataset.tensor(column.slice(1), "c")
        assert tensor.data_ptr() == column.buffers()[1].address + 8
        vectors = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2))
        assert torch_dataset.tensor(vectors, "c").data_ptr() == vectors.values.buffers()[1].address

    def test_null_is_nan_among_floating_numbers(self):
        tensor = torch_dataset.tensor(pa.array([1.0, None], pa.float32()), "c")
        assert tensor[0] == 1
        assert math.isnan(tensor[1])
        vectors = pa.array([[0, 0], [1, None], None, [3, 4]], pa.list_(pa.float32(), 2)).slice(1)
        tensor = torch_dataset.tensor(vectors, "c")
        assert torch.isnan(tensor).tolist() == [[False, True], [True, True], [False, False]]
        assert tensor[2].tolist() == [3, 4]

    @pytest.mark.parametrize(
        ("type", "values"),
        [
            (pa.int32(), [1, None]),
            (pa.bool_(), [True, None]),
            (pa.list_(pa.int8(), 1), [[1], None]),
            (pa.list_(pa.int8(), 1), [[1], [None]]),
        ],
    )
    def test_null_is_refused_among_others(self, type, values):
        with pytest.raises(InvalidInput, match="column 'c' holds NULL"):
            torch_dataset.tensor(pa.array(values, type), "c")

    def test_other_values_are_lists(self):
        for values in (["a", None], [b"x", None], [[1], None], [{"a": 1}, None]):
            assert torch_dataset.tensor(pa.array(values), "c") == values


class TestArguments:
    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            ({"rank": 2, "world_size": 2}, "rank is below world_size"),
            ({"rank": 0}, "go together"),
            ({"rank": 0, "world_size": 0}, "world_size is a whole number from 1"),
            ({"batch_size": 0}, "batch_size"),
            ({"seed": -1}, "a seed"),
        ],
    )
    def test_bad_ones_are_refused(self, table, arguments, text):
        with pytest.raises(InvalidInput, match=text):
            table.scan().to_torch(**arguments)

    def test_scans_that_cannot_be_divided_are_refused(self, table, root):
        with pytest.raises(InvalidInput, match="leave the limit out"):
            table.scan(limit=1).to_torch()
        with pytest.raises(InvalidInput, match="needs columns"):
            table.scan([]).to_torch()
        weak = phalanx.create(root, SCHEMA, ["part"], transactions="weak").append(rows(0, "a", 9))
        assert ids_of(weak.scan(["id"]).to_torch()) == list(range(9))
        with pytest.raises(InvalidInput, match="is weak and cannot be divided"):
            weak.scan().to_torch(rank=0, world_size=2)

    def test_without_arguments_the_ranks_are_those_of_torch(self, table, ids, tmp_path):
        store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        try:
            assert torch_dataset.rank_of(None, None) == (0, 1)
            assert sorted(ids_of(table.scan(["id"]).to_torch())) == ids
        finally:
            torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def run(table, tmp_path_factory):
    """What a script with workers has read."""
    script = tmp_path_factory.mktemp("script") / "train.py"
    script.write_text(TRAINING)
    command = [sys.executable, str(script), table.uri]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class TestWorkers:
    """Workers are processes of their own, started from a script as a user would write it."""

    def test_each_row_is_read_by_one_worker(self, run, ids):
        assert sorted(run["spawn"]) == ids
        assert sorted(run["epochs"][0]) == sorted(run["epochs"][1]) == ids

    def test_workers_that_stay_see_the_next_epoch(self, run):
        assert run["epochs"][0] != run["epochs"][1]
        assert run["epochs"][0] == run["epochs"][2]

    def test_a_forked_worker_is_refused(self, table):
        loader = DataLoader(
            table.scan(["id"]).to_torch(), batch_size=None, num_workers=1,
            multiprocessing_context="fork",
        )  # fmt: skip
        with pytest.raises(PhalanxError, match='multiprocessing_context="spawn"'):
            list(loader)


TRAINING = """
import json, sys
import phalanx
from torch.utils.data import DataLoader

def ids_of(loader):
    return [id for batch in loader for id in batch["id"].tolist()]

if __name__ == "__main__":
    table = phalanx.open(sys.argv[1])
    options = dict(batch_size=None, num_workers=2)
    plain = DataLoader(
        table.scan(["id"]).to_torch(32), **options, multiprocessing_context="spawn"
    )
    dataset = table.scan(["id"]).to_torch(32, shuffle=True, seed=5)
    staying = DataLoader(
        dataset, **options, multiprocessing_context="forkserver", persistent_workers=True
    )
    epochs = []
    for epoch in (0, 1, 0):
        dataset.set_epoch(epoch)
        epochs.append(ids_of(staying))
    json.dump({"spawn": ids_of(plain), "epochs": epochs}, sys.stdout)
"""
