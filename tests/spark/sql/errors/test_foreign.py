"""What users of Delta and Iceberg write: refused with what to write instead, never ignored."""

import pytest
from pyspark.errors import AnalysisException, ParseException

from phalanx.spark import foreign
from phalanx.spark.procedures import base
from tests.spark.door import call, catalog


@pytest.fixture(scope="module")
def table(shared_lake):
    shared_lake.sql(
        "CREATE TABLE {db}.t PARTITIONED BY (p) AS SELECT id, id % 2 AS p FROM range(4)"
    )
    return shared_lake


class TestReadOptions:
    @pytest.mark.parametrize(
        ("option", "ours"),
        [
            ("snapshot-id", "versionAsOf"),
            ("AS-OF-TIMESTAMP", "timestampAsOf"),
            ("readChangeFeed", "startingVersion"),
            ("startingVersion", "use readStream"),
        ],
    )
    def test_of_a_table(self, table, option, ours):
        frame = table.spark.read.option(option, 1).table(table["t"])
        with pytest.raises(AnalysisException, match=ours) as caught:
            frame.collect()
        assert caught.value.getCondition() == "PHALANX_INVALID_INPUT"
        with pytest.raises(AnalysisException, match=ours):
            frame.count()  # which no task reads for

    def test_by_path(self, table):
        reader = table.spark.read.format("phalanx").option("tag", "x")
        with pytest.raises(AnalysisException, match="there is no option tag: use versionAsOf"):
            reader.load(str(table.path / "t")).collect()

    def test_in_sql(self, table):
        with pytest.raises(AnalysisException, match="versionAsOf"):
            table.sql("SELECT * FROM {db}.t WITH ('branch' = 'b')").collect()

    def test_of_a_stream(self, table):
        described = call(
            "load_table", catalog=catalog(), ident=[str(table.path / "t")], declared=None
        )
        with pytest.raises(foreign.InvalidInput, match="use startingTimestamp"):
            call("start_stream", table=described["handle"], options={"stream-from-timestamp": "1"})

    def test_what_nobody_knows_is_ignored(self, table):
        read = table.spark.read.option("versionAsOf", 1).option("no such option", "x")
        assert read.table(table["t"]).count() == 4

    @pytest.mark.parametrize("option", sorted(foreign.OPTIONS))
    def test_each_is_refused(self, option):
        with pytest.raises(foreign.InvalidInput, match=f"there is no option {option}: .*use "):
            call("check_read", options=[option.upper()])


def said(table, statement):
    """The sentence that a statement is refused with."""
    with pytest.raises(AnalysisException) as caught:
        table.sql(statement)
    assert caught.value.getCondition() == "PHALANX_INVALID_INPUT", caught.value
    return str(caught.value)


class TestStatements:
    @pytest.mark.parametrize(
        ("statement", "instead"),
        [
            ("OPTIMIZE {db}.t", "CALL lake.system.optimize('{n}.t')"),
            (
                "OPTIMIZE {db}.t WHERE p = '0' ZORDER BY (id, p)",
                "CALL lake.system.optimize('{n}.t', where => 'p = \\'0\\'', zorder_by => 'id, p')",
            ),
            ("VACUUM {db}.t RETAIN 168 HOURS", "CALL lake.system.vacuum('{n}.t', '168 hours')"),
            ("vacuum {db}.t dry run;", "CALL lake.system.vacuum('{n}.t', dry_run => true)"),
            ("RESTORE TABLE {db}.t TO VERSION AS OF 2", "CALL lake.system.rollback('{n}.t', '2')"),
            (
                "-- back\nRESTORE {db}.t TIMESTAMP AS OF '2026-01-01'",
                "CALL lake.system.rollback('{n}.t', '2026-01-01')",
            ),
            ("DESCRIBE HISTORY {db}.t", "SELECT * FROM {db}.t.snapshots"),
            ("DESC DETAIL {db}.t", "DESCRIBE EXTENDED {db}.t"),
            (
                "ALTER TABLE {db}.t CREATE TAG `x` AS OF VERSION 2 RETAIN 3 DAYS",
                "CALL lake.system.tag('{n}.t', 'x', '2')",
            ),
            ("ALTER TABLE {db}.t DROP TAG IF EXISTS x", "CALL lake.system.drop_tag('{n}.t', 'x')"),
            ("ALTER TABLE {db}.t CREATE BRANCH b", "a table has no branches"),
            (
                "ALTER TABLE {db}.t WRITE ORDERED BY id DESC",
                "CALL lake.system.optimize('{n}.t', sort_by => 'id DESC')",
            ),
            (
                "ALTER TABLE {db}.t WRITE DISTRIBUTED BY PARTITION",
                "SET TBLPROPERTIES ('write.distribution' = 'hash')",
            ),
        ],
    )
    def test_what_to_write_instead(self, table, statement, instead):
        assert table.named(instead).replace("{n}", table.name) in said(table, statement)

    def test_what_is_written_instead_works(self, table):
        sentence = said(table, "OPTIMIZE {db}.t WHERE p = 0 ZORDER BY (id)")
        assert table.sql(sentence.split("write ")[1]).first().rewritten == 1
        sentence = said(table, "DESCRIBE HISTORY {db}.t")
        assert table.sql(sentence.split("write ")[1]).count() >= 1

    def test_a_name_of_the_current_namespace(self, table):
        table.sql("USE {db}")
        try:
            assert f"rollback('{table.name}.t', '1')" in said(table, "RESTORE t TO VERSION AS OF 1")
        finally:
            table.sql("USE spark_catalog.default")

    @pytest.mark.parametrize(
        "statement",
        [
            "OPTIMIZE spark_catalog.default.t",
            "VACUUM {db}.t NOW",
            "ALTER TABLE {db}.t CREATE SOMETHING",
            "VACUUM",
            "SELEC 1",
        ],
    )
    def test_what_is_nobodys_stays_a_syntax_error(self, table, statement):
        with pytest.raises(ParseException, match="PARSE_SYNTAX_ERROR"):
            table.sql(statement)

    def test_the_column_of_a_table_named_history(self, table):
        """To Spark, DESCRIBE history t is about the column t."""
        table.sql("CREATE TABLE {db}.history (t INT COMMENT 'here')")
        table.sql("USE {db}")
        try:
            assert ("comment", "here") in table.rows("DESCRIBE history t")
        finally:
            table.sql("USE spark_catalog.default")
            table.sql("DROP TABLE {db}.history")

    def test_the_error_of_spark_is_the_cause(self, table):
        with pytest.raises(AnalysisException) as caught:
            table.sql("VACUUM {db}.t")
        assert "PARSE_SYNTAX_ERROR" in caught.value._origin.getCause().getMessage()


class TestProcedures:
    @pytest.mark.parametrize(
        ("name", "ours"),
        [("rollback_to_snapshot", "rollback"), ("remove_orphan_files", "vacuum")],
    )
    def test_of_iceberg(self, table, name, ours):
        with pytest.raises(AnalysisException, match=f"use lake.system.{ours}$"):
            table.sql(f"CALL lake.system.{name}('t', 1)")

    def test_each_means_one_of_ours(self):
        assert set(foreign.PROCEDURES.values()) <= base.PROCEDURES.keys()
        assert foreign.PROCEDURES.keys().isdisjoint(base.PROCEDURES)


class TestPlaces:
    def test_a_path_without_a_table(self, spark, tmp_path):
        path = tmp_path / "nope"
        with pytest.raises(AnalysisException, match=f"^there is no table at {path}") as caught:
            spark.sql(f"SELECT * FROM phalanx.`{path}`")
        assert caught.value.getCondition() == "PHALANX_NOT_FOUND"
        with pytest.raises(AnalysisException, match=f"TABLE_OR_VIEW_NOT_FOUND.*{path}"):
            spark.read.format("phalanx").load(str(path))
        spark.sql(f"DROP TABLE IF EXISTS phalanx.`{path}`")

    def test_a_table_in_the_catalog_of_spark(self, spark):
        frame = spark.range(1).write.format("phalanx")
        statements = (
            lambda: spark.sql("CREATE TABLE t (id INT) USING phalanx"),
            lambda: spark.sql("CREATE TABLE t USING phalanx AS SELECT 1 AS id"),
            lambda: frame.saveAsTable("t"),
        )
        for statement in statements:
            with pytest.raises(AnalysisException, match=r"such as lake\.default\.t$"):
                statement()

    def test_a_name_there_for_a_table_that_is_ours(self, table):
        table.sql(f"CREATE TABLE named USING phalanx LOCATION '{table.path / 't'}'")
        assert table.sql("SELECT * FROM named").count() == 4
        table.sql("DROP TABLE named")
