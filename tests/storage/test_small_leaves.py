import threading

import lance
import pyarrow as pa
import pytest
from lance import LanceOperation

from phalanx import CorruptTable, InvalidInput
from phalanx.lru import LruCache
from phalanx.model.filters import bind
from phalanx.model.parser import parse
from phalanx.model.schema import TableSchema
from phalanx.storage import small_leaves
from phalanx.storage.files import DETACHED
from phalanx.storage.leaf import Leaf, open_leaf
from phalanx.storage.leaf_delta import LeafDelta
from phalanx.storage.location import Location
from phalanx.storage.small_leaves import Member

SCHEMA = TableSchema.assign(
    pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("name", pa.string()),
            ("place", pa.struct([("city", pa.string()), ("at", pa.list_(pa.float64()))])),
            ("tags", pa.map_(pa.string(), pa.int32())),
            ("vector", pa.list_(pa.float32(), 2)),
        ]
    )
)


@pytest.fixture
def location(tmp_path):
    return Location(tmp_path)


@pytest.fixture(autouse=True)
def forgetful(monkeypatch):
    """No test profits from what another has read."""
    monkeypatch.setattr(small_leaves, "_remembered", LruCache(1_000_000, small_leaves._bytes))


@pytest.fixture
def opened(monkeypatch):
    """The leaves that have been opened."""
    found = []

    def recording(location, folder, version):
        found.append(folder)
        return open_leaf(location, folder, version)

    monkeypatch.setattr("phalanx.storage.leaf.open_leaf", recording)
    monkeypatch.setattr("phalanx.storage.small_leaves.open_leaf", recording)
    return found


def rows(ids):
    return pa.Table.from_pylist(
        [
            {
                "id": id,
                "name": None if id % 3 == 0 else f"n{id}",
                "place": {"city": f"c{id}", "at": [id / 2, None]} if id % 4 else None,
                "tags": [("a", id)],
                "vector": [id, -id],
            }
            for id in ids
        ],
        schema=SCHEMA.arrow,
    )


def add(location, folder, ids, base=None, schema=SCHEMA, table=None):
    leaf = Leaf(location, folder, schema)
    writer = leaf.create() if base is None else leaf.writer(base)
    written = writer.write(rows(ids) if table is None else table)
    return Member(folder, leaf.commit(base, LeafDelta(added=(written,))))


def delete(location, member, where):
    leaf = Leaf(location, member.folder, SCHEMA)
    delta, _ = leaf.delete(member.version, predicate(where))
    return Member(member.folder, leaf.commit(member.version, delta))


def predicate(text):
    return bind(parse(text), SCHEMA.column)


def five(location):
    return [add(location, f"{n}_v1$dataset", range(10 * n, 10 * n + 10)) for n in range(5)]


def read(location, members, columns=("id",), where=None, schema=SCHEMA, **options):
    found = small_leaves.scan(location, schema, members, list(columns), where, **options)
    return [row for batch in found for row in batch.to_pylist()]


def ids(location, members, **options):
    return [row["id"] for row in read(location, members, **options)]


def is_bundled(location, members):
    return [(p.size, p.manifest is not None) for p, _ in small_leaves._parts(location, members)]


class TestReading:
    def test_all_rows_in_order(self, location):
        members = five(location)
        assert is_bundled(location, members) == [(5, True)]
        assert read(location, members, SCHEMA.arrow.names) == rows(range(50)).to_pylist()

    def test_the_order_of_the_members_counts(self, location):
        members = five(location)[::-1]
        assert ids(location, members)[:11] == [*range(40, 50), 30]

    def test_without_order_the_rows_are_the_same(self, location):
        assert sorted(ids(location, five(location), in_order=False)) == list(range(50))

    def test_columns_filter_and_limit(self, location):
        members = five(location)
        where = predicate("id >= 8 AND name IS NOT NULL")
        wanted = [id for id in range(8, 50) if id % 3]
        assert ids(location, members, where=where) == wanted
        assert ids(location, members, where=where, limit=4) == wanted[:4]
        assert small_leaves.count(location, SCHEMA, members, where) == len(wanted)
        assert small_leaves.count(location, SCHEMA, members, None) == 50
        assert read(location, members, ["name", "id"], predicate("id = 7")) == [
            {"name": "n7", "id": 7}
        ]

    def test_several_files_in_a_leaf(self, location):
        members = five(location)
        more = add(location, members[1].folder, [19, 20], base=members[1].version)
        assert ids(location, [members[0], more, members[2]]) == [*range(20), 19, 20, *range(20, 30)]

    def test_a_leaf_without_rows(self, location):
        members = five(location)
        empty = Member("e_v1$dataset", 0)
        leaf = Leaf(location, empty.folder, SCHEMA)
        leaf.create()
        version = leaf.commit(None, LeafDelta(replaced=True))
        found = [members[0], Member(empty.folder, version), members[1]]
        assert ids(location, found) == list(range(20))

    def test_what_lance_cannot_evaluate(self, location):
        where = predicate("1 / (id - id) = 3")
        for work in (small_leaves.scan(location, SCHEMA, five(location), ["id"], where), None):
            with pytest.raises(InvalidInput, match="Lance cannot evaluate"):
                list(work) if work else small_leaves.count(location, SCHEMA, five(location), where)

    def test_nothing_is_written(self, location, tmp_path):
        members = five(location)
        before = sorted(tmp_path.rglob("*"))
        assert len(ids(location, members)) == 50
        assert sorted(tmp_path.rglob("*")) == before


class TestByThemselves:
    """Leaves whose files are not all there is to them."""

    def test_deleted_rows_stay_deleted(self, location):
        members = five(location)
        members[2] = delete(location, members[2], "id IN (20, 25)")
        assert is_bundled(location, members) == [(2, True), (1, False), (2, True)]
        assert ids(location, members) == [id for id in range(50) if id not in (20, 25)]
        assert small_leaves.count(location, SCHEMA, members, predicate("id > 19")) == 28

    def test_columns_in_several_files(self, location):
        members = five(location)
        leaf = Leaf(location, members[0].folder, SCHEMA)
        handle = leaf.open(members[0].version)
        whole = handle.to_table()
        names = pa.array([f"m{id}" for id in range(10)])
        fragment = handle.get_fragments()[0]
        merged, schema = fragment.merge(pa.table({"id": whole["id"], "more": names}), "id")
        made = lance.LanceDataset.commit(
            handle,
            LanceOperation.Merge([merged], schema),
            read_version=handle.version,
            detached=True,
        )
        members[0] = Member(members[0].folder, made.version)
        assert is_bundled(location, members) == [(1, False), (4, True)]
        assert ids(location, members) == list(range(50))

    def test_another_schema(self, location):
        """Leaves of earlier schemas are not put together with others."""
        members = five(location)[:3]
        turned = TableSchema(pa.schema([SCHEMA.tagged.field(name) for name in ("name", "id")]))
        table = pa.table({"name": ["x"], "id": [99]}, schema=turned.arrow)
        members[1] = add(location, "t_v1$dataset", None, schema=turned, table=table)
        assert is_bundled(location, members) == [(1, False), (1, False), (1, False)]
        assert ids(location, members) == [*range(10), 99, *range(20, 30)]

    def test_files_of_different_formats(self, location):
        schema = TableSchema.assign(pa.schema([("id", pa.int64())]))
        members = []
        for number, format in enumerate(("2.0", "2.1", "2.1")):
            leaf = Leaf(location, f"{number}_v1$dataset", schema)
            table = pa.table({"id": [number]}, schema=schema.arrow)
            main = lance.write_dataset(table, leaf.uri, data_storage_version=format)
            made = lance.LanceDataset.commit(
                main, LanceOperation.Append([]), read_version=main.version, detached=True
            ).version
            members.append(Member(leaf.folder, made))
        assert is_bundled(location, members) == [(3, False)]
        assert ids(location, members, schema=schema) == [0, 1, 2]

    def test_values_outside_the_file(self, location):
        blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
        uuid = pa.field("u", pa.uuid())
        for column in (blob, uuid, pa.field("s", pa.struct([uuid]))):
            assert small_leaves._is_kept_outside(column)
        assert not any(small_leaves._is_kept_outside(column) for column in SCHEMA.arrow)


class TestRemembering:
    def test_leaves_are_opened_once(self, location, opened):
        members = five(location)
        opened.clear()
        for _ in range(3):
            assert len(ids(location, members)) == 50
        assert opened == [member.folder for member in members]

    def test_a_leaf_that_has_changed(self, location):
        members = five(location)
        assert len(ids(location, members)) == 50
        more = add(location, members[0].folder, [99], base=members[0].version)
        assert ids(location, [more, *members[1:]]) == [*range(10), 99, *range(10, 50)]
        fewer = delete(location, members[0], "id < 9")
        assert ids(location, [fewer, *members[1:]]) == list(range(9, 50))
        assert ids(location, members) == list(range(50))

    def test_versions_on_main_are_not_remembered(self, location, tmp_path, opened):
        """They come again with other rows where a leaf was removed and made anew."""
        main = [Member(f"{n}_v1$dataset", 1) for n in range(2)]
        for folder, _, _ in main:
            lance.write_dataset(rows([1]), location.child(folder))
        for _ in range(2):
            opened.clear()
            assert ids(location, main) == [1, 1]
            assert len(opened) == 2
        assert ids(location, [Member(folder, None) for folder, _, _ in main]) == [1, 1]
        assert not len(small_leaves._remembered)

    def test_the_same_folders_in_another_table(self, location, tmp_path):
        other = Location(tmp_path / "other")
        members = five(location)
        twins = [add(other, member.folder, [n]) for n, member in enumerate(members)]
        assert len(ids(location, members)) == 50
        assert ids(other, twins) == list(range(5))

    def test_it_is_bounded(self, location, opened):
        members = five(location)
        pairs = [[members[i], members[j]] for i in range(5) for j in range(i)]
        size = small_leaves._bytes([p for p, _ in small_leaves._parts(location, pairs[0])])
        small_leaves._remembered = LruCache(3 * size + size // 2, small_leaves._bytes)
        for pair in pairs:
            assert len(ids(location, pair)) == 20
        assert len(small_leaves._remembered) == 3
        assert small_leaves._remembered.weight == sum(
            map(small_leaves._bytes, small_leaves._remembered.values())
        )
        opened.clear()
        assert len(ids(location, pairs[-3])) == 20
        assert not opened
        assert len(ids(location, pairs[0])) == 20
        assert len(opened) == 2

    def test_many_threads_at_once(self, location):
        members = five(location)
        found = []
        threads = [
            threading.Thread(target=lambda: found.append(ids(location, members))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [list(range(50))] * 8
        assert small_leaves._remembered.weight == sum(
            map(small_leaves._bytes, small_leaves._remembered.values())
        )


class TestDamage:
    def test_a_missing_version(self, location):
        members = five(location)
        with pytest.raises(CorruptTable, match=r"0_v1\$dataset has no version"):
            ids(location, [Member(members[0].folder, DETACHED + 5), *members[1:]])

    @pytest.mark.parametrize("remembered", [False, True])
    def test_a_missing_file_is_no_empty_leaf(self, location, tmp_path, remembered):
        members = five(location)
        if remembered:
            assert len(ids(location, members, limit=1)) == 1
        (file,) = (tmp_path / members[3].folder / "data").iterdir()
        file.unlink()
        with pytest.raises(CorruptTable, match=r"3_v1\$dataset is gone or damaged"):
            ids(location, members)
