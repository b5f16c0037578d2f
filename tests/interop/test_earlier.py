"""Tables of the earlier specification (seed 001), made by hand from its appendices."""

import datetime as dt
import hashlib
import itertools
import json
import random

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx.model.transforms import (
    Day,
    Expression,
    Hour,
    Identity,
    Md5Bucket,
    Month,
    Truncate,
    Year,
)
from tests.conformance.appendices import APPENDIX_A_SCHEMA, DAY_1, DAY_2, StockClient, row
from tests.interop.earlier_tables import (
    BY_DATE,
    LEAF_1,
    LEAF_2,
    SCHEMA,
    EarlierTable,
    appendix_c,
    rows,
    set_metadata,
)


def ids(table, **options):
    return sorted(table.scan(**options).to_arrow()["id"].to_pylist())


def _with_id(type):
    return SCHEMA.set(0, pa.field("id", type, nullable=False))


class TestAppendices:
    def test_metadata(self, root):
        """Appendix A."""
        table = phalanx.open(appendix_c(root).commit())
        assert [spec.id for spec in table.specs] == [1, 2]
        assert table.spec.id == 2
        assert [field.field_id for field in table.spec.fields] == ["event_year", "country"]
        assert table.schema.names == ["id", "event_date", "country"]
        assert table.schema.field("id").nullable is True, "nobody has proven the declared NOT NULL"

    def test_manifest(self, root):
        """Appendix C: each leaf is read at its version, and not at its newest."""
        table = phalanx.open(appendix_c(root).commit())
        assert ids(table) == [1, 2, 3, 4, 5, 20, 30, 31, 32, 40, 50]
        assert table.count() == 11

    def test_pruning(self, root):
        """Appendix E gives exactly its two leaves."""
        table = phalanx.open(appendix_c(root).commit())
        scan = table.scan(where="event_date = '2025-12-10' AND country = 'US'")
        leaves = scan.plan().leaves
        assert [(leaf.row.object_id, leaf.row.location, leaf.version) for leaf in leaves] == [
            (LEAF_1, f"b4a3c2d1_{LEAF_1}", 5),
            (LEAF_2, f"aabbccdd_{LEAF_2}", 3),
        ]
        assert [leaf.residual for leaf in leaves] == [
            "country = 'US'",
            "event_date = DATE '2025-12-10'",
        ]
        assert ids(table, where="event_date = '2025-12-10' AND country = 'US'") == [
            *(1, 3, 5),
            *(30, 31, 32),
        ]

    def test_the_stock_client_reads_it_too(self, root):
        """Appendix F: the manifest made by hand is one that stock clients accept."""
        appendix_c(root).commit()
        client = StockClient(str(root))
        tables = ["$".join(t) for id in client.spaces() for t in client.tables(id)]
        leaves = phalanx.open(root).scan().plan().leaves
        assert sorted(tables) == sorted(leaf.row.object_id for leaf in leaves)


def md5_bucket(number, *values):
    if None in values:
        return None
    digest = hashlib.md5("".join(str(value) for value in values).encode()).digest()
    return abs(int.from_bytes(digest[:8], "big", signed=True)) % number


def toward_zero(value, width):
    return value - (abs(value) % width) * (1 if value >= 0 else -1)


SOURCES = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("day", pa.date32()),
        pa.field("ts", pa.timestamp("us")),
        pa.field("text", pa.string()),
        pa.field("n", pa.int32()),
    ]
)
SOURCES_JSON = {
    "fields": [
        {
            "name": name,
            "nullable": True,
            "type": {"type": type} | more,
            "metadata": {"lance:field_id": str(id)},
        }
        for id, (name, type, more) in enumerate(
            [
                ("id", "int64", {}),
                ("day", "date32", {}),
                ("ts", "timestamp", {}),
                ("text", "utf8", {}),
                ("n", "int32", {}),
            ]
        )
    ]
}
NAMES = SOURCES.names

#: Every row of Appendix D: expression, sources, result type, what it is here, and by hand.
APPENDIX_D = {
    "identity": ("col0", ["text"], "utf8", Identity, lambda v: v),
    "identity of a date": ("col0", ["day"], "date32", Identity, lambda v: v),
    "year": ("date_part('year', col0)", ["day"], "int32", Year, lambda v: v and v.year),
    "month": ("date_part('month', col0)", ["ts"], "int32", Month, lambda v: v and v.month),
    "day": ("date_part('day', col0)", ["ts"], "int32", Day, lambda v: v and v.day),
    "hour": (
        "date_part('hour', col0)",
        ["ts"],
        "int32",
        Hour,
        lambda v: None if v is None else v.hour,
    ),
    "bucket": (
        "abs(md5_int(col0)) % 8",
        ["n"],
        "int64",
        Md5Bucket,
        lambda v: md5_bucket(8, v),
    ),
    "bucket of text": (
        "abs(md5_int(col0)) % 8",
        ["text"],
        "int64",
        Md5Bucket,
        lambda v: md5_bucket(8, v),
    ),
    "multi_bucket": (
        "abs(md5_int(concat(col0, col1))) % 8",
        ["text", "n"],
        "int64",
        Md5Bucket,
        lambda v, w: md5_bucket(8, v, w),
    ),
    "truncate of text": (
        "left(col0, 2)",
        ["text"],
        "utf8",
        Truncate,
        lambda v: None if v is None else v[:2],
    ),
    "truncate": (
        "col0 - (col0 % 10)",
        ["n"],
        "int32",
        Truncate,
        lambda v: None if v is None else toward_zero(v, 10),
    ),
    "another expression": (
        "upper(col0)",
        ["text"],
        "utf8",
        Expression,
        lambda v: None if v is None else v.upper(),
    ),
    "an unknown function": (
        "md5_int(col0) % 4",
        ["n"],
        "int64",
        Expression,
        lambda v: None if v is None else hash(v) % 4,
    ),
}


def spec_of(name):
    expression, sources, type, _, _ = APPENDIX_D[name]
    return [
        {
            "field_id": "f",
            "source_ids": [NAMES.index(source) for source in sources],
            "expression": expression,
            "result_type": {"type": type},
        }
    ]


def random_rows(chance, count):
    words = ["", "a", "ab", "abc", "ABd", "é", "éa", "b%", "'", "zz"]

    def maybe(value):
        return None if chance.random() < 0.15 else value

    return [
        {
            "id": number,
            "day": maybe(dt.date(1968, 1, 1) + dt.timedelta(40 * chance.randrange(40))),
            "ts": maybe(dt.datetime(1969, 11, 1) + dt.timedelta(hours=chance.randrange(3000))),
            "text": maybe(chance.choice(words)),
            "n": maybe(chance.choice([-(2**31), 2**31 - 1, *range(-25, 26)])),
        }
        for number in range(count)
    ]


def write(root, name, lines):
    """A table that is partitioned by one expression of Appendix D, by hand."""
    _, sources, _, _, function = APPENDIX_D[name]
    table = EarlierTable(root, SOURCES_JSON, {1: spec_of(name)})
    leaves = {}
    for line in lines:
        leaves.setdefault(function(*(line[source] for source in sources)), []).append(line)
    for value, part in leaves.items():
        table.leaf(1, (value,), pa.Table.from_pylist(part, schema=SOURCES), read_version=1)
    return phalanx.open(table.commit())


def filters(chance, lines):
    """Filters on every column, with values that are there and some that are not."""
    for _ in range(12):
        line = chance.choice(lines)
        name = chance.choice(["day", "ts", "text", "n"])
        value = line[name]
        operator = chance.choice(["=", "<", ">=", "<>", "IN", "IS"])
        if value is None or operator == "IS":
            yield f"{name} IS {chance.choice(['', 'NOT '])}NULL"
            continue
        prefix = {"day": "DATE ", "ts": "TIMESTAMP "}.get(name, "")
        text = str(value) if name == "n" else prefix + "'" + str(value).replace("'", "''") + "'"
        yield f"{name} IN ({text}, {text})" if operator == "IN" else f"{name} {operator} {text}"


class TestAppendixD:
    @pytest.mark.parametrize("name", APPENDIX_D)
    def test_expressions_are_recognized(self, root, name):
        table = write(root, name, random_rows(random.Random(1), 40))
        (field,) = table.spec.fields
        assert type(field.transform) is APPENDIX_D[name][3]

    @pytest.mark.parametrize("name", [name for name in APPENDIX_D if name != "an unknown function"])
    def test_equality_reads_one_partition(self, root, name):
        lines = random_rows(random.Random(2), 120)
        table = write(root, name, lines)
        sources = APPENDIX_D[name][1]
        line = next(line for line in lines if all(line[source] for source in sources))
        parts = []
        for source in sources:
            value = line[source]
            prefix = {"day": "DATE ", "ts": "TIMESTAMP "}.get(source, "")
            parts.append(f"{source} = " + (str(value) if source == "n" else f"{prefix}'{value}'"))
        scan = table.scan(where=" AND ".join(parts))
        assert scan.plan().total > 3
        assert scan.plan().selected == 1
        wanted = [r["id"] for r in lines if all(r[source] == line[source] for source in sources)]
        assert sorted(scan.to_arrow()["id"].to_pylist()) == wanted

    @pytest.mark.parametrize("seed", range(2))
    @pytest.mark.parametrize("name", APPENDIX_D)
    def test_pruning_loses_no_row(self, root, tmp_path, name, seed):
        chance = random.Random(f"{name} {seed}")
        lines = random_rows(chance, 150)
        table = write(root, name, lines)
        plain = lance.write_dataset(pa.Table.from_pylist(lines, schema=SOURCES), tmp_path / "plain")
        conditions = list(filters(chance, lines))
        conditions += [f"({a}) OR ({b})" for a, b in itertools.pairwise(conditions)]
        conditions += [
            f"({a}) AND NOT ({b})" for a, b in zip(conditions, conditions[3:], strict=False)
        ]
        for where in conditions:
            wanted = sorted(plain.to_table(columns=["id"], filter=where)["id"].to_pylist())
            assert ids(table, where=where) == wanted, where
            assert table.count(where) == len(wanted), where

    def test_a_zoned_timestamp_is_cut_on_its_own_clock(self, root):
        """DataFusion looks at the clock of the column's zone, and our transform at UTC."""
        schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "America/New_York"))])
        fields = [
            {
                "field_id": "year",
                "source_ids": [1],
                "expression": "date_part('year', col0)",
                "result_type": {"type": "int32"},
            }
        ]
        described = phalanx.model.schema.TableSchema.assign(schema).to_json()
        moment = dt.datetime(2025, 1, 1, 3, tzinfo=dt.UTC)  # New York still has 2024
        table = EarlierTable(root, described, {1: fields})
        table.leaf(1, (2024,), rows((1, moment), schema=schema), read_version=1)
        opened = phalanx.open(table.commit())
        assert type(opened.spec.fields[0].transform) is Expression
        assert ids(opened, where="ts = TIMESTAMP '2025-01-01 03:00:00Z'") == [1]


def branched(root, folder):
    """A leaf with the version 2 on main, and version 3 on a branch that starts at version 1."""
    dataset = lance.dataset(root / folder, version=1)
    branch = dataset.create_branch("dev/one", 1)
    branch = lance.write_dataset(rows((7, DAY_1, "US")), branch, mode="append")
    branch = lance.write_dataset(rows((8, DAY_1, "US")), branch, mode="append")
    return branch.version


class TestVersionsToRead:
    def make(self, root, *batches, columns=("read_version", "read_branch", "read_tag"), **read):
        table = EarlierTable(root, APPENDIX_A_SCHEMA, {1: BY_DATE}, columns)
        batches = batches or (rows((1, DAY_1, "US")), rows((2, DAY_1, "US")))
        return table, table.leaf(1, (DAY_1,), *batches, **read)

    def test_a_version_on_main(self, root):
        table, _ = self.make(root, read_version=1)
        assert ids(phalanx.open(table.commit())) == [1]

    def test_a_version_on_a_branch(self, root):
        table, folder = self.make(root, read_version=2, read_branch="dev/one")
        assert branched(root, folder) == 3
        opened = phalanx.open(table.commit())
        assert ids(opened) == [1, 7]
        assert ids(opened, where="id > 1") == [7]
        (leaf,) = opened.scan().plan().leaves
        assert leaf.open().to_table()["id"].to_pylist() == [1, 7]

    def test_a_tag(self, root):
        table, folder = self.make(root, read_tag="good")
        lance.dataset(root / folder).tags.create("good", 1)
        assert ids(phalanx.open(table.commit())) == [1]

    def test_a_tag_on_a_branch(self, root):
        table, folder = self.make(root, read_tag="good")
        branched(root, folder)
        lance.dataset(root / folder).tags.create("good", ("dev/one", 3))
        assert ids(phalanx.open(table.commit())) == [1, 7, 8]

    def test_a_tag_that_moves(self, root):
        table, folder = self.make(root, read_tag="good")
        tags = lance.dataset(root / folder).tags
        tags.create("good", 1)
        uri = table.commit()
        before = phalanx.open(uri)
        assert before.count() == 1
        tags.update("good", 2)
        assert ids(phalanx.open(uri)) == [1, 2]
        assert ids(before) == [1], "a handle stays at what it was opened at"

    def test_nothing_is_the_newest_on_main(self, root):
        table, folder = self.make(root)
        branched(root, folder)
        uri = table.commit()
        assert ids(phalanx.open(uri)) == [1, 2]
        lance.write_dataset(rows((3, DAY_1, "US")), root / folder, mode="append")
        assert ids(phalanx.open(uri)) == [1, 2, 3]

    @pytest.mark.parametrize("columns", [(), ("read_version",), ("read_tag",)])
    def test_columns_that_are_not_there(self, root, columns):
        table, _ = self.make(root, columns=columns)
        assert ids(phalanx.open(table.commit())) == [1, 2]

    @pytest.mark.parametrize(
        "read",
        [
            {"read_branch": "dev/one"},
            {"read_tag": "good", "read_version": 1},
            {"read_tag": "good", "read_branch": "dev/one", "read_version": 1},
        ],
    )
    def test_other_combinations_are_refused(self, root, read):
        table, _ = self.make(root, **read)
        uri = table.commit()
        with pytest.raises(phalanx.CorruptTable, match="do not go together"):
            phalanx.open(uri).count()
        assert not phalanx.check(uri).ok

    def test_a_tag_that_is_not_there(self, root):
        table, _ = self.make(root, read_tag="good")
        with pytest.raises(phalanx.CorruptTable, match="has no tag 'good'"):
            phalanx.open(table.commit()).count()

    @pytest.mark.parametrize("folder", ["../outside", "a/../../b", ""])
    def test_no_leaf_leads_out_of_the_table(self, root, folder):
        table, _ = self.make(root, read_version=1)
        (leaf,) = (line for line in table.lines.values() if line["object_type"] == "table")
        leaf["location"] = folder
        opened = phalanx.open(table.commit())
        with pytest.raises(phalanx.InvalidInput, match="does not lie inside"):
            opened.scan().to_arrow()

    def test_no_branch_leads_out_of_the_table(self, root):
        table, _ = self.make(root, read_version=1, read_branch="../../../outside")
        with pytest.raises(phalanx.InvalidInput, match="does not lie inside"):
            phalanx.open(table.commit()).scan().to_arrow()


def test_md5_buckets_of_a_table_of_ours(root):
    """The same expression partitions a new table, too."""
    schema = pa.schema([("id", pa.int32()), ("x", pa.string())])
    bucket = phalanx.expr("abs(md5_int(concat(col0, col1))) % 4", ["id", "x"], name="bucket")
    table = phalanx.create(root, schema, [bucket])
    lines = [{"id": id, "x": None if id % 5 == 0 else str(id % 3)} for id in range(40)]
    table.append(lines)
    expected = {md5_bucket(4, line["id"], line["x"]) for line in lines}
    assert set(table.partitions()["bucket"].to_pylist()) == expected
    assert table.scan(where="id = 7 AND x = '1'").plan().selected == 1
    table.change_type("id", pa.int64())
    table.append(lines)
    for line in lines:
        condition = "IS NULL" if line["x"] is None else f"= '{line['x']}'"
        assert table.count(f"id = {line['id']} AND x {condition}") == 2
    table.drop_column("x")
    table.append([{"id": 7}])
    assert table.count("id = 7") == 3


class TestWhatItIsNot:
    def test_it_is_only_read(self, root):
        uri = appendix_c(root).commit()
        table = phalanx.open(uri)
        before = lance.dataset(root / "__manifest").version
        for change in (
            lambda: table.append([row(9, DAY_2, "US")]),
            lambda: table.delete("id = 1"),
            lambda: table.add_column("x", pa.int64()),
            lambda: table.evolve_partitioning(["country"]),
            table.optimize,
            table.vacuum,
            table.repair,
        ):
            with pytest.raises(phalanx.UnsupportedTable, match=r"until phalanx\.interop\.upgrade"):
                change()
        assert lance.dataset(root / "__manifest").version == before

    def test_check(self, root):
        table = appendix_c(root)
        uri = table.commit()
        report = phalanx.check(uri)
        assert report.ok
        assert (report.leaves, report.snapshots) == (5, 1)
        assert [problem.kind for problem in report.problems] == ["other-form"]
        leaf = root / f"b4a3c2d1_{LEAF_1}"
        (file,) = lance.dataset(leaf, version=5).get_fragments()[0].data_files()
        (leaf / "data" / file.path).unlink()
        damage = phalanx.check(uri).damage
        assert [problem.kind for problem in damage] == ["file-missing"]

    def test_check_of_a_version_that_is_gone(self, root):
        table = EarlierTable(root, APPENDIX_A_SCHEMA, {1: BY_DATE})
        table.leaf(1, (DAY_1,), rows((1, DAY_1, "US")), read_version=9)
        damage = phalanx.check(table.commit()).damage
        assert [problem.kind for problem in damage] == ["version-missing"]

    @pytest.mark.parametrize(
        ("columns", "text"),
        [
            (("id", "country", "event_date"), "has the id 1 for the column country"),
            (("event_date", "id", "country"), "has the id 0 for the column event_date"),
            (("id",), "has no column 'event_date'"),
        ],
    )
    def test_check_of_columns_that_contradict_the_table(self, root, columns, text):
        table = EarlierTable(root, APPENDIX_A_SCHEMA, {1: BY_DATE})
        table.leaf(1, (DAY_1,), rows((1, DAY_1, "US")))
        table.leaf(1, (DAY_2,), rows((2, DAY_2, "US")).select(columns))
        damage = phalanx.check(table.commit()).damage
        assert {problem.kind for problem in damage} == {"schema-drift"}
        assert text in str(damage[0])

    @pytest.mark.parametrize("type", [pa.int64(), pa.string()])
    def test_leaves_with_another_type(self, root, type):
        schema = json.loads(json.dumps(APPENDIX_A_SCHEMA).replace('"int64"', '"int32"'))
        table = EarlierTable(root, schema, {1: BY_DATE})
        narrow, other = (rows((7, DAY_1, "US")).cast(_with_id(t)) for t in (pa.int16(), type))
        table.leaf(1, (DAY_1,), narrow)
        folder = table.leaf(1, (DAY_2,), other)
        uri = table.commit()
        with pytest.raises(phalanx.UnsupportedTable, match=f"leaf .*{folder[:8]}.* column 'id' as"):
            phalanx.open(uri).to_arrow()
        (problem,) = phalanx.check(uri).damage
        assert (problem.kind, f"'id' as {type}" in problem.what) == ("schema-drift", True)

    def test_a_narrower_type_is_no_damage(self, root):
        table = EarlierTable(root, APPENDIX_A_SCHEMA, {1: BY_DATE})
        table.leaf(1, (DAY_1,), rows((7, DAY_1, "US")).cast(_with_id(pa.int16())))
        uri = table.commit()
        assert phalanx.check(uri).ok
        assert ids(phalanx.open(uri), where="id = 7") == [7]

    def test_check_of_a_leaf_outside_of_the_table(self, root):
        table = EarlierTable(root / "table", APPENDIX_A_SCHEMA, {1: BY_DATE})
        table.leaf(1, (DAY_1,), rows((1, DAY_1, "US")), folder="../out")
        (problem,) = phalanx.check(table.commit()).damage
        assert (problem.kind, "'../out'" in problem.what) == ("leaf-outside", True)

    @pytest.mark.parametrize(
        ("key", "text"),
        [
            ("schema", "{"),
            ("partition_spec_v1", "[{}]"),
            ("partition_spec_v1", '[{"field_id": "a", "source_ids": [1], "expression": "col0"}]'),
            ("partition_spec_v2", "["),
        ],
    )
    def test_metadata_that_cannot_be_read(self, root, key, text):
        uri = appendix_c(root).commit()
        set_metadata(root / "__manifest", {key: text})
        with pytest.raises(phalanx.UnsupportedTable, match="its metadata cannot be read: "):
            phalanx.open(uri)

    def test_specs_of_both_forms(self, root):
        uri = appendix_c(root).commit()
        spec = {"id": 1, "fields": [f | {"expression": "col0"} for f in BY_DATE]}
        set_metadata(root / "__manifest", {"partition_spec_v1": json.dumps(spec)})
        assert phalanx.open(uri).scan(where="event_date = '2025-12-11'").plan().selected == 3
