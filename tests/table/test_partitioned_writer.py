"""Rows are cut by partition, and wait in a buffer of a stated size."""

import threading

import numpy as np
import pyarrow as pa
import pytest

import phalanx
from phalanx.storage import leaf as leaf_module
from phalanx.table.partitioned_writer import PartitionedWriter


class TestCutting:
    def test_each_leaf_gets_its_rows_in_their_order(self, root):
        schema = pa.schema([("id", pa.int64()), ("k", pa.int32())])
        table = phalanx.create(root, schema, ["k"])
        keys = np.random.default_rng(0).integers(0, 7, 5_000)
        table.append(pa.table({"id": np.arange(5_000), "k": pa.array(keys, pa.int32())}))
        for leaf in table.scan().plan().leaves:
            k = leaf.values["k"]
            found = table.scan(where=f"k = {k}").to_arrow()["id"].to_pylist()
            assert found == np.flatnonzero(keys == k).tolist()

    def test_many_fields(self, root):
        """More combinations than a 64-bit number can count."""
        names = [f"k{i}" for i in range(12)]
        schema = pa.schema([(name, pa.int64()) for name in names])
        table = phalanx.create(root, schema, names)
        rng = np.random.default_rng(0)
        data = {name: rng.integers(0, 60, 60) for name in names}
        table.append(pa.table(data))
        assert table.partitions().num_rows == 60
        assert sorted(map(str, table.scan().to_arrow().to_pylist())) == sorted(
            map(str, pa.table(data).to_pylist())
        )

    def test_leaves_of_all_sizes(self, root):
        """New leaves with the same number of rows are written together, the others alone."""
        schema = pa.schema([("id", pa.int64()), ("k", pa.int32()), ("text", pa.string())])
        table = phalanx.create(root, schema, ["k"])
        rng = np.random.default_rng(5)
        first = np.concatenate([rng.integers(0, 300, 700), np.full(5_000, 7)])
        both = np.concatenate([first, rng.integers(200, 600, 900)])
        texts = pa.array([None if i % 11 == 0 else "x" * (i % 50) for i in range(len(both))])
        rows = pa.table([np.arange(len(both)), pa.array(both, pa.int32()), texts], schema=schema)
        table.append(rows.slice(0, len(first)))
        table.append(rows.slice(len(first)))
        assert table.check().ok
        stored = table.to_arrow().sort_by("id")
        assert stored.equals(rows)
        assert table.partitions().num_rows == len(set(both.tolist()))
        for k in (7, 200, 599):
            few = table.scan(where=f"k = {k}").to_arrow()["id"].to_pylist()
            assert sorted(few) == np.flatnonzero(both == k).tolist()
            assert table.count(f"k = {k} and id >= 0") == len(few)

    @pytest.mark.parametrize("each", [1, 7, 400])
    @pytest.mark.parametrize("outer", ["struct", "list", "map", "struct in struct"])
    def test_booleans_in_structs(self, root, outer, each):
        """Lance fails to write a slice of them, if both they and the struct may be NULL."""
        inner = pa.struct([("a", pa.bool_()), ("n", pa.int32())])
        type = {
            "struct": inner,
            "list": pa.list_(inner),
            "map": pa.map_(pa.string(), inner),
            "struct in struct": pa.struct([("m", inner)]),
        }[outer]

        def value(i):
            held = None if i % 3 == 0 else {"a": [None, True, False][i % 4 % 3], "n": i}
            several = [] if i % 5 == 0 else [held, None]
            return {
                "struct": held,
                "list": several,
                "map": [(str(at), item) for at, item in enumerate(several)],
                "struct in struct": None if i % 7 == 0 else {"m": held},
            }[outer]

        count = 30 * each
        schema = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("c", type)])
        rows = pa.Table.from_pylist(
            [{"id": i, "k": i // each, "c": value(i)} for i in range(count)], schema
        )
        table = phalanx.create(root, schema, ["k"])
        table.append(rows)
        assert table.to_arrow().sort_by("id").to_pylist() == rows.to_pylist()
        table.append(rows.slice(count // 3, each))
        table.delete(f"id < {count // 2}")
        table.optimize()
        expected = rows.to_pylist()[count // 2 :]
        assert table.to_arrow().sort_by("id").to_pylist() == expected

    def test_booleans_in_structs_of_large_leaves(self, root, monkeypatch):
        """Lance itself cuts rows where it begins another file."""
        monkeypatch.setattr(leaf_module, "_FILE_ROWS", 700)
        type = pa.struct([("a", pa.bool_())])
        schema = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("c", type)])
        rows = pa.Table.from_pylist(
            [
                {"id": i, "k": i % 2, "c": None if i % 3 == 0 else {"a": [None, True][i % 4 % 2]}}
                for i in range(5_001)
            ],
            schema,
        )
        table = phalanx.create(root, schema, ["k"])
        table.append(rows)
        assert table.files().num_rows == 8
        assert table.to_arrow().sort_by("id").to_pylist() == rows.to_pylist()
        table.optimize(target_rows=1_500)
        assert table.files().num_rows == 4
        assert table.to_arrow().sort_by("id").to_pylist() == rows.to_pylist()


class Stream:
    """A stream of rows that is made as it is read."""

    SCHEMA = pa.schema([("k", pa.int32()), ("text", pa.string())])

    def __init__(self, batches, rows=2_000, keys=20):
        self.batches, self.rows, self.keys, self.made = batches, rows, keys, 0

    def __iter__(self):
        rng = np.random.default_rng(0)
        for _ in range(self.batches):
            keys = pa.array(rng.integers(0, self.keys, self.rows), pa.int32())
            text = pa.array(["some text of thirty characters"] * self.rows)
            batch = pa.record_batch([keys, text], schema=self.SCHEMA)
            self.made += batch.nbytes
            yield batch

    def reader(self):
        return pa.RecordBatchReader.from_batches(self.SCHEMA, iter(self))


class TestMemory:
    """Rows wait in a buffer of a stated size, however many there are."""

    BUFFER = 1_000_000

    @pytest.fixture
    def table(self, root):
        return phalanx.create(root, Stream.SCHEMA, ["k"])

    def test_what_waits_is_bounded(self, table, monkeypatch):
        waiting = []
        make_room = PartitionedWriter._make_room

        def watched(self):
            waiting.append(self._waiting)
            make_room(self)
            assert self._waiting <= self._buffer_bytes // 2
            held = sum(t.nbytes for g in self._groups.values() for t in g.waiting)
            assert 0.9 * self._waiting <= held <= self._waiting

        monkeypatch.setattr(PartitionedWriter, "_make_room", watched)
        stream = Stream(batches=100)
        table.append(stream.reader(), buffer_bytes=self.BUFFER)
        assert stream.made > 7 * self.BUFFER
        assert len(waiting) > 5
        # A part of a chunk comes on top of a buffer that is just not full.
        assert max(waiting) < 1.3 * self.BUFFER
        assert table.count() == 100 * 2_000

    def test_so_is_all_memory(self, table):
        peak = 0
        done = threading.Event()
        before = pa.total_allocated_bytes()

        def watch():
            nonlocal peak
            while not done.wait(0.001):
                peak = max(peak, pa.total_allocated_bytes() - before)

        watcher = threading.Thread(target=watch)
        watcher.start()
        stream = Stream(batches=150)
        try:
            table.append(stream.reader(), buffer_bytes=self.BUFFER)
        finally:
            done.set()
            watcher.join()
        assert stream.made > 11 * self.BUFFER
        assert peak < 5 * self.BUFFER

    def test_a_large_batch_is_cut(self, root, table, monkeypatch):
        sizes = []
        write = PartitionedWriter.write

        def watched(self, tables):
            def measured():
                for one in tables:
                    sizes.append(one.nbytes)
                    yield one

            return write(self, measured())

        monkeypatch.setattr(PartitionedWriter, "write", watched)
        batch = next(iter(Stream(batches=1, rows=100_000)))
        table.append(pa.Table.from_batches([batch]), buffer_bytes=self.BUFFER)
        assert len(sizes) > 10
        assert max(sizes) < self.BUFFER
        assert table.count() == 100_000

    def test_large_partitions_get_large_files(self, root):
        """The largest groups are written first, and small ones wait for company."""
        table = phalanx.create(root, Stream.SCHEMA, ["k"])

        def batches():
            for i in range(60):
                keys = np.zeros(2_000, np.int32)
                keys[0] = i % 5 + 1
                text = ["some text of thirty characters"] * 2_000
                yield pa.record_batch([pa.array(keys), pa.array(text)], schema=Stream.SCHEMA)

        reader = pa.RecordBatchReader.from_batches(Stream.SCHEMA, batches())
        table.append(reader, buffer_bytes=self.BUFFER)
        leaves = {row["k"]: row for row in table.partitions().to_pylist()}
        assert leaves[0]["rows"] == 60 * 1_999
        assert leaves[0]["fragments"] > 3
        assert [leaves[k]["fragments"] for k in range(1, 6)] == [1] * 5
