"""Compression of data files: what is chosen, what it saves, and that rows stay as they are."""

import random

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx.errors import InvalidInput
from phalanx.storage import compression


def prose(count, lines=8, seed=1):
    """Long texts, each of which repeats words of its own."""
    source = random.Random(seed)
    texts = []
    for _ in range(count):
        words = [source.randbytes(6).hex() for _ in range(10)]
        texts.append("\n".join(" ".join(source.sample(words, k=8)) for _ in range(lines)))
    return texts


def documents(count=1000, seed=1):
    return pa.table(
        {
            "id": range(count),
            "part": [i % 2 for i in range(count)],
            "body": prose(count, seed=seed),
            "price": [round(i * 0.37 % 200, 2) for i in range(count)],
        }
    )


@pytest.fixture(autouse=True)
def forgotten():
    compression._tried.clear()


def size(table):
    return sum(row["bytes"] for row in table.partitions().to_pylist())


def made(path, data, **properties):
    named = {f"write.{name}": word for name, word in properties.items()}
    table = phalanx.create(path, data.schema, partition_by=["part"], properties=named)
    table.append(data)
    return table


def same_rows(table, data):
    assert table.to_arrow().sort_by("id").equals(data.sort_by("id"))


class TestChoice:
    def test_long_text_is_compressed_by_default(self, tmp_path):
        data = documents()
        plain = made(tmp_path / "plain", data, compression="none")
        auto = made(tmp_path / "auto", data)
        assert size(auto) < 0.75 * size(plain)
        same_rows(auto, data)
        same_rows(plain, data)

    def test_text_that_does_not_shrink_is_left_alone(self, tmp_path):
        source = random.Random(1)
        noise = [source.randbytes(400).hex() for _ in range(2000)]
        data = pa.table({"id": range(2000), "part": [0] * 2000, "body": noise})
        plain = made(tmp_path / "plain", data, compression="none")
        auto = made(tmp_path / "auto", data)
        assert size(auto) == pytest.approx(size(plain), rel=0.01)
        assert compression._tried.values() == [False]

    def test_short_text_and_numbers_that_gain_are_compressed(self, tmp_path):
        count = 100_000
        source = random.Random(1)
        data = pa.table(
            {
                "id": [source.randrange(2**40) for _ in range(count)],
                "part": [0] * count,
                "at": pa.array([10**15 + 3_000_000 * i for i in range(count)], pa.timestamp("us")),
                "text": [f"event of user {source.randbytes(8).hex()}" for _ in range(count)],
            }
        )
        plain = made(tmp_path / "plain", data, compression="none")
        names = {}
        for name in ("at", "text", "id"):
            only = {"compression": "none", f"compression.{name}": "auto"}
            names[name] = size(plain) - size(made(tmp_path / name, data, **only))
        assert names["at"] > 3 * count  # of 6.4 bytes a row
        assert names["text"] > 2 * count  # of 15
        # Random numbers are packed as well as they can be. What Lance makes of text varies.
        assert abs(names["id"]) < 0.5 * count
        auto = made(tmp_path / "auto", data)
        assert size(auto) == pytest.approx(size(plain) - sum(names.values()), abs=count)
        same_rows(auto, data)
        some = data.slice(500, 1)
        assert auto.scan(where=f"id = {some['id'][0]}").to_arrow().equals(some)

    def test_keys_that_lance_packs_into_few_bytes_are_left_alone(self, tmp_path):
        count = 100_000
        data = pa.table({"id": range(0, 20 * count, 20), "part": [0] * count})
        made(tmp_path / "t", data)
        assert compression._tried.values() == [False, False]

    def test_small_writes_are_not_tried(self, tmp_path):
        made(tmp_path / "t", documents(50))
        assert len(compression._tried) == 0

    def test_zstd_also_compresses_floats_and_what_is_nested(self, tmp_path):
        count = 20_000
        prices = [round(i * 0.37 % 200, 2) for i in range(count)]
        data = pa.table(
            {
                "id": range(count),
                "part": [0] * count,
                "price": prices,
                "tags": [[{"k": f"key {i % 9}", "v": price}] for i, price in enumerate(prices)],
            }
        )
        plain = made(tmp_path / "plain", data, compression="none")
        small = made(tmp_path / "small", data, compression="zstd")
        assert size(small) < 0.7 * size(plain)
        same_rows(small, data)

    def test_one_column(self, tmp_path):
        data = documents(4000)
        everything = made(tmp_path / "all", data, compression="zstd")
        properties = {"write.compression": "none", "write.compression.price": "zstd"}
        table = phalanx.create(
            tmp_path / "t", data.schema, partition_by=["part"], properties=properties
        )
        table.append(data)
        plain = made(tmp_path / "plain", data, compression="none")
        assert size(everything) < size(table) < size(plain)
        same_rows(table, data)

    def test_a_stream(self, tmp_path):
        data = documents(3000)
        plain = made(tmp_path / "plain", data, compression="none")
        table = phalanx.create(tmp_path / "t", data.schema, partition_by=["part"])
        table.append(data.to_reader(max_chunksize=1000))
        assert size(table) < 0.75 * size(plain)
        same_rows(table, data)

    def test_what_the_schema_says_takes_precedence(self, tmp_path):
        data = documents()
        own = data.schema.field("body").with_metadata({"lance-encoding:compression": "none"})
        data = data.cast(data.schema.set(2, own))
        table = made(tmp_path / "t", data, compression="zstd")
        small = made(tmp_path / "small", documents(), compression="zstd")
        assert size(table) > 1.5 * size(small)


class TestRows:
    def test_every_kind_of_change(self, tmp_path):
        data = documents()
        table = made(tmp_path / "t", data)
        table.update({"body": "body || '!'"}, where="id < 500")
        table.delete("id >= 900")
        table.merge(documents(950, seed=2).slice(900), on=["id", "part"])
        rows = {row["id"]: row["body"] for row in table.to_arrow().to_pylist()}
        texts, other = data["body"].to_pylist(), documents(950, seed=2)["body"].to_pylist()
        assert rows == {
            i: texts[i] + "!" if i < 500 else texts[i] if i < 900 else other[i] for i in range(950)
        }
        assert table.check().ok

    def test_nulls_maps_and_names_with_dots(self, tmp_path):
        count = 3000
        text = [None if i % 3 == 0 else body for i, body in enumerate(prose(count, 3))]
        pairs = pa.array(
            [None if i % 5 == 0 else [("k", t)] for i, t in enumerate(text)],
            pa.map_(pa.string(), pa.string()),
        )
        data = pa.table({"id": range(count), "part": [0] * count, "a.b": text, "m": pairs})
        table = made(tmp_path / "t", data, compression="zstd")
        same_rows(table, data)

    def test_plain_lance_reads_a_leaf(self, tmp_path):
        table = made(tmp_path / "t", documents(), compression="zstd")
        table.set_properties({"anchor": "commit"})
        leaf = table.scan(where="part = 1").plan().leaves[0]
        dataset = lance.dataset(leaf.open().uri)
        assert dataset.count_rows() == 500
        assert len(dataset.to_table(columns=["body"])["body"][0].as_py()) > 100

    def test_a_weak_table(self, tmp_path):
        data = documents()
        table = phalanx.create(
            tmp_path / "t", data.schema, partition_by=["part"], transactions="weak"
        )
        table.append(data)
        table.append(data)
        assert len(table) == 2 * data.num_rows
        assert compression._tried.values() == [True]
        assert table.check().ok


class TestLater:
    def test_optimize_compresses_what_was_not(self, tmp_path):
        data = documents()
        table = made(tmp_path / "t", data, compression="none")
        table.append(documents(1000, seed=2))
        before = size(table)
        table.set_properties({"write.compression": None})
        assert size(table) == before
        table.optimize()
        assert size(table) < 0.75 * before
        assert len(table) == 2000

    def test_nothing_is_left_behind(self, tmp_path):
        for mode in ("strong", "weak"):
            data = documents()
            table = phalanx.create(
                tmp_path / mode, data.schema, partition_by=["part"], transactions=mode
            )
            table.append(data)
            assert compression._tried.values()[-1]
            assert "orphan" not in str(table.check())
        assert not list((tmp_path / "weak").glob("*/_versions/d*"))

    def test_a_small_first_file(self, tmp_path):
        data = documents(14_000)
        table = made(tmp_path / "t", data.slice(0, 250), compression="none")
        table.append(data.slice(250))
        before = size(table)
        table.set_properties({"write.compression": None})
        table.optimize()
        assert size(table) < 0.75 * before
        same_rows(table, data)

    def test_small_leaves_of_a_column_that_was_tried(self, tmp_path):
        data = documents()
        auto, plain = made(tmp_path / "t", data), made(tmp_path / "p", data, compression="none")
        more = documents(100, seed=3)
        before = size(auto), size(plain)
        auto.append(more)
        plain.append(more)
        assert size(auto) - before[0] < 0.8 * (size(plain) - before[1])

    def test_another_table_in_the_same_place(self, tmp_path):
        noise = documents().set_column(
            2, "body", [[random.Random(i).randbytes(500).hex() for i in range(1000)]]
        )
        made(tmp_path / "t", noise).drop()
        again = made(tmp_path / "t", documents())
        assert compression._tried.values() == [False, True]
        same_rows(again, documents())

    def test_after_a_schema_change(self, tmp_path):
        data = documents()
        table = made(tmp_path / "t", data)
        table.drop_column("price").add_column("price", pa.float64())
        table.append(data)
        rows = table.to_arrow()
        assert rows.num_rows == 2000
        assert sorted(rows["body"].to_pylist()) == sorted(2 * data["body"].to_pylist())
        assert sum(price is None for price in rows["price"].to_pylist()) == 1000

    def test_rollback_brings_the_property_back(self, tmp_path):
        table = made(tmp_path / "t", documents(10))
        table.set_properties(
            {"write.compression.body": "none", "write.compression.price": "zstd", "mine": "1"}
        )
        version, properties = table.version, dict(table.properties)
        table.rename_column("body", "text")
        table.drop_column("price")
        table.set_properties({"mine": "2"})
        table.rollback(version)
        assert table.properties == {**properties, "mine": "2"}

    def test_the_property_follows_its_column(self, tmp_path):
        table = made(tmp_path / "t", documents(10))
        table.set_properties({"write.compression.body": "none", "write.compression.price": "zstd"})
        table.rename_column("body", "text")
        table.drop_column("price")
        kept = {k: v for k, v in table.properties.items() if k.startswith("write.")}
        assert kept == {"write.compression.text": "none"}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("write.compression", "lz4", "is one of auto, zstd, none, not 'lz4'"),
        ("write.compression.nobody", "zstd", "there is no column 'nobody'"),
        ("write.compression.body", "gzip", "is one of auto, zstd, none, not 'gzip'"),
    ],
)
def test_what_is_refused(tmp_path, name, value, message):
    with pytest.raises(InvalidInput, match=message):
        phalanx.create(tmp_path / "t", documents(1).schema, properties={name: value})
    table = phalanx.create(tmp_path / "t", documents(1).schema)
    with pytest.raises(InvalidInput, match=message):
        table.set_properties({name: value})
