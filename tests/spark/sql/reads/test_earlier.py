"""Tables of other clients in Spark: of the earlier specification, upgraded, and adopted."""

import lance
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

from phalanx.interop import adopt
from phalanx.model.transforms import expression
from tests.conformance.appendices import DAY_1, SCHEMA
from tests.interop.earlier_tables import BY_DATE, EarlierTable, appendix_c, rows
from tests.interop.test_earlier import APPENDIX_A_SCHEMA, branched
from tests.interop.test_upgrade import BY_BUCKET

ALL = [1, 2, 3, 4, 5, 20, 30, 31, 32, 40, 50]
BOTH = "event_date = DATE '2025-12-10' AND country = 'US'"


@pytest.fixture
def earlier(lake):
    (lake.path / "t").mkdir()
    appendix_c(lake.path / "t").commit()
    return lake


def ids(frame):
    return sorted(row.id for row in frame.select("id").collect())


def test_by_path(earlier, spark):
    frame = spark.read.format("phalanx").load(str(earlier.path / "t"))
    assert ids(frame) == ALL
    assert ids(frame.where(BOTH)) == [1, 3, 5, 30, 31, 32]


def test_by_name(earlier):
    assert ids(earlier.sql("SELECT * FROM {db}.t")) == ALL
    assert ids(earlier.sql(f"SELECT * FROM {{db}}.t WHERE {BOTH}")) == [1, 3, 5, 30, 31, 32]
    assert earlier.rows("SELECT country, count(*) FROM {db}.t GROUP BY country") == [
        ("CA", 3),
        ("US", 8),
    ]
    assert earlier.rows("SELECT count(*) FROM {db}.t") == [(11,)]
    joined = "SELECT a.id FROM {db}.t a JOIN {db}.t b ON a.id = b.id AND a.country = b.country"
    assert ids(earlier.sql(joined)) == ALL


def test_a_branch_and_a_tag(lake):
    table = EarlierTable(lake.path / "t", APPENDIX_A_SCHEMA, {1: BY_DATE})
    first, second = DAY_1, DAY_1.replace(day=1)
    folder = table.leaf(
        1,
        (first,),
        rows((1, first, "US")),
        rows((2, first, "US")),
        read_version=2,
        read_branch="dev/one",
    )
    branched(lake.path / "t", folder)
    folder = table.leaf(
        1, (second,), rows((3, second, "US")), rows((4, second, "US")), read_tag="good"
    )
    lance.dataset(lake.path / "t" / folder).tags.create("good", 1)
    table.commit()
    assert ids(lake.sql("SELECT * FROM {db}.t")) == [1, 3, 7]


def test_writes_are_refused(earlier):
    with pytest.raises(AnalysisException, match=r"until phalanx\.interop\.upgrade"):
        earlier.sql("INSERT INTO {db}.t VALUES (1, DATE '2025-12-10', 'US')")


def test_upgrade(earlier):
    call = f"CALL lake.system.upgrade(table => '{earlier.name}.t')"
    assert earlier.sql(call).collect() == [(1, 5, 11)]
    assert ids(earlier.sql("SELECT * FROM {db}.t")) == ALL
    earlier.sql("INSERT INTO {db}.t VALUES (100, DATE '2025-12-10', 'US')")
    earlier.sql("DELETE FROM {db}.t WHERE id = 1")
    earlier.sql("UPDATE {db}.t SET country = 'MX' WHERE id = 2")
    assert ids(earlier.sql("SELECT * FROM {db}.t")) == [*ALL[1:], 100]
    assert ids(earlier.sql("SELECT * FROM {db}.t VERSION AS OF 1")) == ALL
    assert earlier.open("t").check().damage == []


def test_md5_buckets_after_the_upgrade(lake):
    """Rows that Spark writes go where the rows of the other client with the same key are."""
    table = EarlierTable(lake.path / "t", APPENDIX_A_SCHEMA, {1: BY_BUCKET})
    transform = expression(BY_BUCKET[0]["expression"])
    buckets = transform.apply([pa.array(range(12))]).to_pylist()
    for bucket in sorted(set(buckets)):
        part = [(id, DAY_1, "US") for id in range(12) if buckets[id] == bucket]
        table.leaf(1, (bucket,), rows(*part), read_version=1)
    table.commit()
    lake.sql(f"CALL lake.system.upgrade(table => '{lake.name}.t')").collect()
    lake.sql("INSERT INTO {db}.t SELECT id, DATE '2025-12-11', 'CA' FROM range(12)")
    opened = lake.open("t")
    assert opened.scan().plan().total == len(set(buckets))
    for id in range(12):
        assert opened.scan(where=f"id = {id}").count() == 2
        assert lake.rows(f"SELECT count(*) FROM {{db}}.t WHERE id = {id}") == [(2,)]


def test_adopted(lake, tmp_path):
    for country, id in (("US", 1), ("CA", 2)):
        lance.write_dataset(rows((id, DAY_1, country)), tmp_path / country)
    datasets = {country: tmp_path / country for country in ("US", "CA")}
    adopt(lake.path / "t", SCHEMA, ["country"], datasets)
    assert ids(lake.sql("SELECT * FROM {db}.t")) == [1, 2]
    assert ids(lake.sql("SELECT * FROM {db}.t WHERE country = 'US'")) == [1]
    lake.sql("INSERT INTO {db}.t VALUES (3, DATE '2025-12-10', 'US')")
    lake.sql("UPDATE {db}.t SET country = 'US' WHERE id = 2")
    lake.sql("DELETE FROM {db}.t WHERE id = 1")
    assert lake.rows("SELECT id, country FROM {db}.t") == [(2, "US"), (3, "US")]
    assert lance.dataset(tmp_path / "US").count_rows() == 1
    assert lake.open("t").check().damage == []
