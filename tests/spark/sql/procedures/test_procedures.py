"""CALL lake.system.<procedure>."""

import zoneinfo

import lance
import pytest
from pyspark.errors import AnalysisException

from tests.spark.needs import needs


@pytest.fixture
def table(lake):
    lake.sql("CREATE TABLE {db}.t (id INT, country STRING) PARTITIONED BY (country)")
    lake.sql("INSERT INTO {db}.t VALUES (1, 'US'), (2, 'DE')")
    return lake


def call(lake, procedure, arguments):
    return lake.sql(f"CALL lake.system.{procedure}({arguments})").collect()


@needs("show_procedures")
def test_they_are_listed_and_described(lake):
    names = [row.procedure_name for row in lake.sql("SHOW PROCEDURES IN lake.system").collect()]
    assert {"vacuum", "rollback", "tag", "expire_snapshots", "check", "repair"} <= set(names)
    described = lake.sql("DESCRIBE PROCEDURE lake.system.vacuum").collect()
    assert "Remove old snapshots" in str(described)
    lake.sql("USE {db}")
    try:
        assert [row.procedure_name for row in lake.sql("SHOW PROCEDURES").collect()] == names
    finally:
        lake.sql("USE spark_catalog.default")


def test_tag_and_rollback(table):
    name = f"{table.name}.t"
    assert call(table, "tag", f"table => '{name}', name => 'good'") == [("good", 2)]
    table.sql("DELETE FROM {db}.t WHERE country = 'US'")
    ((version,),) = call(table, "rollback", f"'{name}', 'good'")
    assert version == table.open("t").version == 5
    assert table.rows("SELECT * FROM {db}.t") == [(1, "US"), (2, "DE")]
    assert call(table, "drop_tag", f"'{name}', 'good'") == [("good",)]


def test_vacuum_and_expire(table):
    name = f"{table.name}.t"
    table.sql("TRUNCATE TABLE {db}.t")
    (row,) = call(table, "vacuum", f"table => '{name}', dry_run => true")
    assert row.report.startswith("would remove 0 files")
    call(table, "expire_snapshots", f"table => '{name}', older_than => '0 seconds'")
    call(table, "vacuum", f"table => '{name}', older_than => '0 seconds', force => true")
    with pytest.raises(AnalysisException, match=r"version 2 .* has expired"):
        table.sql("SELECT * FROM {db}.t VERSION AS OF 2").collect()


def between(lake, first, zone):
    """A time between a version and the next one, as clocks in a zone show it."""
    times = {row["version"]: row["committed_at"] for row in lake.open("t").snapshots().to_pylist()}
    middle = times[first] + (times[first + 1] - times[first]) / 2
    return middle.astimezone(zoneinfo.ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M:%S.%f")


@pytest.mark.parametrize("name", ["Asia/Tokyo", "America/New_York"])
def test_times_are_in_the_zone_of_the_session(table, zone, name):
    table.sql("INSERT INTO {db}.t VALUES (3, 'US')")
    zone(name)
    target, text = f"'{table.name}.t'", between(table, 2, name)
    assert call(table, "tag", f"{target}, 'then', TIMESTAMP '{text}'") == [("then", 2)]
    assert table.sql(f"SELECT * FROM {{db}}.t VERSION AS OF '{text}'").count() == 2
    (row,) = call(table, "expire_snapshots", f"{target}, TIMESTAMP '{text}', dry_run => true")
    assert row.report.startswith("would expire 1 snapshot ")
    call(table, "rollback", f"{target}, TIMESTAMP '{text}'")
    assert table.sql("SELECT * FROM {db}.t").count() == 2


def test_a_tag_that_looks_like_a_time(table, zone):
    zone("Asia/Tokyo")
    call(table, "tag", f"'{table.name}.t', '2001-01-01', '1'")
    call(table, "rollback", f"'{table.name}.t', '2001-01-01'")
    assert table.rows("SELECT * FROM {db}.t") == []


def test_how_many_snapshots_are_retained(table):
    table.sql("INSERT INTO {db}.t VALUES (3, 'US')")
    target = f"table => '{table.name}.t'"
    more = "older_than => '0 seconds', dry_run => true"
    (row,) = call(table, "expire_snapshots", f"{target}, {more}, retain_last => 2")
    assert row.report.endswith("the oldest version is 2")
    with pytest.raises(AnalysisException, match="retain_last is a whole number from 1, not 0"):
        call(table, "expire_snapshots", f"{target}, {more}, retain_last => 0")


def test_check_and_repair(table):
    (row,) = call(table, "check", f"'{table.name}.t'")
    assert row.report.startswith("ok")
    assert call(table, "repair", f"table => '{table.name}.t', dry_run => true")


def test_repair_takes_stray_rows_in(table):
    name, leaf = f"{table.name}.t", table.open("t").scan(where="country = 'US'").plan().leaves[0]
    lance.write_dataset(leaf.open().to_table(), leaf.uri, mode="append")
    assert "foreign-commits" in call(table, "check", f"'{name}'")[1].report
    assert "cannot mend" in call(table, "repair", f"'{name}'")[0].report
    call(table, "repair", f"table => '{name}', stray => 'take'")
    assert table.rows("SELECT * FROM {db}.t") == [(1, "US"), (1, "US"), (2, "DE")]
    with pytest.raises(AnalysisException, match="'keep', 'take' or 'drop'"):
        call(table, "repair", f"table => '{name}', stray => 'all'")


def test_advice_is_statements_that_run(table):
    table.sql("INSERT INTO {db}.t VALUES (3, 'US'), (4, 'DE')")
    report = [row.report for row in call(table, "advise", f"'{table.name}.t'")]
    statements = [line.strip() for line in report if line.startswith("    ")]
    assert len(statements) == 2
    for statement in statements:
        assert statement.startswith("CALL lake.system.")
        assert f"table => '{table.name}.t'" in statement
        table.sql(statement)
    assert table.open("t").spec.id == 2
    assert table.rows("SELECT count(*) FROM {db}.t.partitions") == [(1,)]
    assert table.rows("SELECT id FROM {db}.t") == [(1,), (2,), (3,), (4,)]


def test_a_quote_in_what_is_advised(lake):
    """A text in a statement means the same to Spark."""
    lake.sql("CREATE TABLE {db}.`it's` (id INT, c STRING) PARTITIONED BY (c)")
    lake.sql("INSERT INTO {db}.`it's` VALUES (1, 'US'), (2, 'DE')")
    report = [row.report.strip() for row in call(lake, "advise", f"'{lake.name}.it\\'s'")]
    (evolve,) = [line for line in report if "evolve_partitioning" in line]
    lake.sql(evolve)
    assert lake.open("it's").spec.id == 2


@pytest.mark.parametrize(
    ("procedure", "arguments", "message"),
    [
        ("nothing", "'t'", "there is no procedure system.nothing"),
        ("rollback", "'{name}', '99'", "no version 99"),
        ("vacuum", "table => '{name}', older_than => 'soon'", "'soon' is not a span of time"),
        ("check", "'{ns}.missing'", "missing"),
    ],
)
def test_refusals(table, procedure, arguments, message):
    arguments = arguments.format(name=f"{table.name}.t", ns=table.name)
    with pytest.raises(AnalysisException, match=message):
        call(table, procedure, arguments)


def test_what_spark_has_cached_is_read_again_after_a_rollback(lake):
    lake.sql("CREATE TABLE {db}.t (id INT, g INT) PARTITIONED BY (g)")
    lake.sql("INSERT INTO {db}.t VALUES (1, 1), (2, NULL)")
    lake.sql("CACHE TABLE {db}.t")
    lake.sql("INSERT INTO {db}.t VALUES (4, 4)")
    assert sorted(lake.rows("SELECT id FROM {db}.t")) == [(1,), (2,), (4,)]
    lake.sql(f"CALL lake.system.rollback('{lake.name}.t', '2')")
    assert sorted(lake.rows("SELECT id FROM {db}.t")) == [(1,), (2,)]
    lake.sql("INSERT INTO {db}.t SELECT id + 100, g FROM {db}.t")
    assert sorted(lake.rows("SELECT id FROM {db}.t")) == [(1,), (2,), (101,), (102,)]
    lake.sql("UNCACHE TABLE {db}.t")
    assert sorted(lake.rows("SELECT id FROM {db}.t")) == [(1,), (2,), (101,), (102,)]


def test_a_table_that_is_not_there_is_named_as_in_sql(lake):
    with pytest.raises(AnalysisException, match=r"the catalog has no table nowhere\.nothing"):
        lake.sql("CALL lake.system.rollback('nowhere.nothing', '1')")
