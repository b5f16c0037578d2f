"""Every statement of Spark's DDL, DML and SHOW commands: what works, and what is refused and why.

`docs/spark.md` has the same table, which is made from this one.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from phalanx.spark import features

DOCS = Path(__file__).parents[4] / "docs" / "spark.md"


@dataclass(frozen=True)
class Statement:
    """A statement as the docs name it, and SQL that shows whether it works."""

    name: str
    sql: tuple[str, ...]
    note: str = ""
    #: What the refusal says; empty if it works.
    refusal: str = ""
    #: The feature of Spark without which there is no such statement.
    needs: str = ""

    @property
    def expected(self) -> str:
        """What this Spark or Phalanx says instead of running it; empty if it works here."""
        lacks = self.needs and not features.has(self.needs)
        return LACKING if lacks else self.refusal

    @property
    def row(self) -> str:
        """Its row in the docs."""
        name = self.name.replace("|", "\\|")
        return f"| `{name}` | {'no' if self.refusal else 'yes'} | {self.note} |"


def yes(name, *sql, note="", needs=""):
    return Statement(name, sql, note, needs=needs)


def no(name, sql, refusal, note, needs=""):
    return Statement(name, (sql,), note, refusal, needs)


#: What a Spark says that lacks a statement. A view that could not be made is not found.
LACKING = "PARSE_SYNTAX_ERROR|does not support views|TABLE_OR_VIEW_NOT_FOUND"

V2 = "NOT_SUPPORTED_COMMAND_FOR_V2_TABLE"
STATEMENTS = [
    # Namespaces
    yes("CREATE NAMESPACE", "CREATE NAMESPACE {db}.n COMMENT 'c' WITH PROPERTIES ('a' = 'b')"),
    no(
        "CREATE NAMESPACE … LOCATION",
        "CREATE NAMESPACE {db}.m LOCATION 'elsewhere'",
        "leave LOCATION out",
        "it lies in the folder of the catalog; tables may lie elsewhere",
    ),
    yes(
        "ALTER NAMESPACE … SET | UNSET PROPERTIES",
        "ALTER NAMESPACE {db}.n SET PROPERTIES ('x'='y')",
    ),
    no(
        "ALTER NAMESPACE … SET LOCATION",
        "ALTER NAMESPACE {db}.n SET LOCATION 'elsewhere'",
        "cannot be changed",
        "as above",
    ),
    yes("COMMENT ON NAMESPACE", "COMMENT ON NAMESPACE {db}.n IS 'text'"),
    yes("DESCRIBE NAMESPACE", "DESCRIBE NAMESPACE EXTENDED {db}.n"),
    yes("SHOW NAMESPACES", "SHOW NAMESPACES IN {db} LIKE 'n*'"),
    yes("DROP NAMESPACE … [CASCADE]", "DROP NAMESPACE {db}.n CASCADE"),
    yes("USE", "USE {db}", "SHOW CURRENT NAMESPACE", "USE spark_catalog.default"),
    # Tables
    yes(
        "CREATE TABLE",
        "CREATE TABLE {db}.t (id BIGINT, name STRING, p INT DEFAULT 1) PARTITIONED BY (p)",
        "CREATE TABLE IF NOT EXISTS {db}.t (id INT)",
        note="`USING phalanx`, or without `USING`; another format is refused",
    ),
    yes("CREATE TABLE … AS SELECT", "CREATE TABLE {db}.c AS SELECT 1 AS id"),
    yes("CREATE TABLE … LIKE", "CREATE TABLE {db}.l LIKE {db}.t", needs="create_table_like"),
    yes(
        "CREATE TABLE … LOCATION",
        "CREATE TABLE {db}.e (id INT) LOCATION '{tmp}/e'",
        "CREATE TABLE {db}.e2 LOCATION '{tmp}/e'",
        note="or `OPTIONS (path …)`; also gives a name to a table that is there already",
    ),
    yes(
        "CREATE TABLE … CLUSTERED BY (c) INTO n BUCKETS",
        "CREATE TABLE {db}.b (id INT) CLUSTERED BY (id) INTO 4 BUCKETS",
    ),
    no(
        "CREATE TABLE … CLUSTER BY, SORTED BY",
        "CREATE TABLE {db}.x (id INT) CLUSTER BY (id)",
        "has no CLUSTER BY",
        "partition by `bucket(N, c)`; `optimize` sorts",
    ),
    yes(
        "CREATE TABLE … CHECK",
        "CREATE TABLE {db}.k (id INT, CONSTRAINT positive CHECK (id > 0))",
        note="enforced, also for rows that come from Python",
        needs="constraints",
    ),
    no(
        "CREATE TABLE … PRIMARY KEY, UNIQUE, FOREIGN KEY",
        "CREATE TABLE {db}.x (id INT, PRIMARY KEY (id))",
        "only CHECK constraints",
        "Spark does not enforce them",
        needs="constraints",
    ),
    no(
        "CREATE TABLE … GENERATED ALWAYS AS",
        "CREATE TABLE {db}.x (id INT, y INT GENERATED ALWAYS AS (id + 1))",
        "does not support generated columns",
        "partition by an expression with `expr(…)` instead",
    ),
    yes("[CREATE OR] REPLACE TABLE", "CREATE OR REPLACE TABLE {db}.c AS SELECT 2 AS id, 'x' AS s"),
    yes(
        "DROP TABLE [PURGE]",
        "DROP TABLE {db}.e2",
        "DROP TABLE IF EXISTS {db}._none",
        note="of a table in another place, only the name",
    ),
    yes(
        "ALTER TABLE … RENAME TO",
        "CREATE TABLE {db}.s (id INT)",
        "ALTER TABLE {db}.s RENAME TO {db}.r",
        note="not in an object store",
    ),
    yes(
        "ALTER TABLE … ADD | DROP | RENAME COLUMN",
        "ALTER TABLE {db}.c ADD COLUMN x INT",
        "ALTER TABLE {db}.c RENAME COLUMN x TO y",
        "ALTER TABLE {db}.c DROP COLUMN y",
        note="also fields of structs, such as `s.x`, and those inside arrays and maps: "
        "`a.element.x`, `m.value.x`; the keys of a map cannot change",
    ),
    yes("ALTER TABLE … REPLACE COLUMNS", "ALTER TABLE {db}.r REPLACE COLUMNS (a INT, b STRING)"),
    yes(
        "ALTER TABLE … ALTER COLUMN",
        "ALTER TABLE {db}.c ALTER COLUMN id TYPE BIGINT",
        "ALTER TABLE {db}.c ALTER COLUMN id COMMENT 'key'",
        "ALTER TABLE {db}.c ALTER COLUMN id AFTER s",
        "ALTER TABLE {db}.c ALTER COLUMN id SET DEFAULT 7",
        note="wider types, comments, places, defaults, `DROP NOT NULL`",
    ),
    no(
        "ALTER TABLE … ALTER COLUMN … SET NOT NULL",
        "ALTER TABLE {db}.c ALTER COLUMN id SET NOT NULL",
        "Cannot change nullable column",
        "rows that are there may have no value",
    ),
    yes(
        "ALTER TABLE … SET | UNSET TBLPROPERTIES",
        "ALTER TABLE {db}.c SET TBLPROPERTIES ('team' = 'us')",
        "ALTER TABLE {db}.c UNSET TBLPROPERTIES ('team')",
    ),
    yes("COMMENT ON TABLE", "COMMENT ON TABLE {db}.c IS 'text'"),
    yes(
        "ALTER TABLE … ADD | DROP | REPLACE PARTITION FIELD",
        "ALTER TABLE {db}.b ADD PARTITION FIELD truncate(10, id)",
        note="of Phalanx, as in Iceberg",
    ),
    yes(
        "ALTER TABLE … ADD | DROP CONSTRAINT",
        "ALTER TABLE {db}.c ADD CONSTRAINT k CHECK (id > 0)",
        "ALTER TABLE {db}.c DROP CONSTRAINT k",
        note="`CHECK`; the rows that are there are checked first",
        needs="constraints",
    ),
    no(
        "ALTER TABLE … SET LOCATION",
        "ALTER TABLE {db}.c SET LOCATION '{tmp}/c'",
        "cannot be changed",
        "drop the name and create it with another location",
    ),
    no("ALTER TABLE … SET SERDE", "ALTER TABLE {db}.c SET SERDE 's'", V2, "is for Hive's tables"),
    # Partitions
    yes(
        "INSERT INTO",
        "INSERT INTO {db}.t VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)",
        "INSERT INTO {db}.t (p, id, name) VALUES (1, 4, 'd')",
        "INSERT INTO {db}.t BY NAME SELECT 1 AS p, 5L AS id, 'e' AS name",
    ),
    yes(
        "SHOW PARTITIONS",
        "SHOW PARTITIONS {db}.t",
        "SHOW PARTITIONS {db}.t PARTITION (p = 1)",
        note="those of the current spec; `.partitions` has all",
    ),
    yes(
        "ALTER TABLE … DROP PARTITION",
        "ALTER TABLE {db}.t DROP PARTITION (p = 3)",
        note="if no row is of an earlier spec",
    ),
    yes(
        "TRUNCATE TABLE … [PARTITION]",
        "TRUNCATE TABLE {db}.t PARTITION (p = 2)",
        "TRUNCATE TABLE {db}.c",
    ),
    no(
        "ALTER TABLE … ADD | RENAME PARTITION",
        "ALTER TABLE {db}.t ADD PARTITION (p = 9)",
        "insert rows instead",
        "a partition is there as long as it has rows",
    ),
    no(
        "ALTER TABLE … RECOVER PARTITIONS, MSCK REPAIR TABLE",
        "MSCK REPAIR TABLE {db}.t",
        V2,
        "the manifest has all partitions; `CALL lake.system.repair` repairs it",
    ),
    # Rows
    yes("INSERT INTO … PARTITION (p = …)", "INSERT INTO {db}.t PARTITION (p = 7) VALUES (7, 'g')"),
    yes(
        "INSERT OVERWRITE",
        "INSERT OVERWRITE {db}.t PARTITION (p = 7) VALUES (8, 'h')",
        note="static and dynamic",
    ),
    yes(
        "INSERT INTO … REPLACE WHERE",
        "INSERT INTO {db}.t REPLACE WHERE p = 7 VALUES (9, 'i', 7)",
        note="rows that do not match may come, too, as in `overwrite(condition)`",
    ),
    yes(
        "INSERT WITH SCHEMA EVOLUTION",
        "INSERT WITH SCHEMA EVOLUTION INTO {db}.t SELECT 1L, 'a', 1, 2 AS more",
        note="adds columns and widens types",
        needs="insert_schema_evolution",
    ),
    yes("UPDATE", "UPDATE {db}.t SET name = 'z' WHERE id = 9"),
    yes("DELETE", "DELETE FROM {db}.t WHERE id = 9"),
    yes(
        "MERGE [WITH SCHEMA EVOLUTION] INTO",
        "MERGE INTO {db}.t t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    ),
    no(
        "LOAD DATA",
        "LOAD DATA INPATH '/x' INTO TABLE {db}.t",
        V2,
        "`import_parquet` and `INSERT … SELECT`",
    ),
    # Reading
    yes(
        "SELECT … VERSION | TIMESTAMP AS OF",
        "SELECT * FROM {db}.t VERSION AS OF 1",
        note="a version, a tag or a time",
    ),
    yes(
        "SELECT … FROM parquet.`path`",
        "SELECT * FROM phalanx.`{path}/t`",
        note="also `phalanx`, `orc`, `csv`, `json`",
    ),
    no(
        "SELECT … CHANGES FROM VERSION",
        "SELECT * FROM {db}.t CHANGES FROM VERSION 1 TO VERSION 2",
        "(?i)change",
        "read the table as a stream instead",
    ),
    yes(
        "CACHE | UNCACHE | REFRESH TABLE",
        "CACHE TABLE {db}.t",
        "UNCACHE TABLE {db}.t",
        "REFRESH TABLE {db}.t",
    ),
    yes("EXPLAIN", "EXPLAIN SELECT * FROM {db}.t"),
    no(
        "ANALYZE TABLE",
        "ANALYZE TABLE {db}.t COMPUTE STATISTICS",
        V2,
        "every write keeps statistics",
    ),
    # Views
    yes(
        "CREATE [OR REPLACE] VIEW",
        "CREATE VIEW {db}.v (n COMMENT 'c') AS SELECT id FROM {db}.t",
        needs="views",
    ),
    yes(
        "ALTER VIEW … AS, RENAME TO, SET TBLPROPERTIES",
        "ALTER VIEW {db}.v RENAME TO {db}.w",
        "ALTER VIEW {db}.w AS SELECT 1 AS n",
        "ALTER VIEW {db}.w SET TBLPROPERTIES ('a' = 'b')",
        needs="views",
    ),
    yes("SHOW VIEWS", "SHOW VIEWS IN {db}", needs="views"),
    yes("DROP VIEW", "DROP VIEW {db}.w", needs="views"),
    # Looking
    yes("SHOW TABLES", "SHOW TABLES IN {db} LIKE 't*'"),
    yes("SHOW TABLE EXTENDED", "SHOW TABLE EXTENDED IN {db} LIKE 't'"),
    yes("SHOW COLUMNS", "SHOW COLUMNS IN {db}.t"),
    yes("SHOW TBLPROPERTIES", "SHOW TBLPROPERTIES {db}.t"),
    yes(
        "SHOW CREATE TABLE",
        "SHOW CREATE TABLE {db}.t",
        note="runs elsewhere: no location, unless you gave one",
    ),
    yes("SHOW FUNCTIONS", "SHOW USER FUNCTIONS IN {db}", note="the partition transforms"),
    yes("SHOW PROCEDURES", "SHOW PROCEDURES IN lake.system", needs="show_procedures"),
    yes("DESCRIBE [EXTENDED] TABLE", "DESCRIBE EXTENDED {db}.t", "DESCRIBE {db}.t id"),
    # Other things
    yes("CALL", "CALL lake.system.optimize('{db}.t')"),
    no(
        "CREATE FUNCTION",
        "CREATE FUNCTION {db}.f AS 'x'",
        "CREATE FUNCTION",
        "use Spark's own catalog",
    ),
    no(
        "CREATE INDEX",
        "CREATE INDEX i ON TABLE {db}.t (id)",
        "CreateIndex is not supported",
        "`CALL lake.system.create_index`",
    ),
    # Of other formats
    no(
        "OPTIMIZE, VACUUM, RESTORE",
        "VACUUM {db}.t RETAIN 168 HOURS",
        "write CALL lake.system.vacuum",
        "`CALL lake.system.optimize`, `vacuum`, `rollback`",
    ),
    no(
        "DESCRIBE HISTORY, DESCRIBE DETAIL",
        "DESCRIBE HISTORY {db}.t",
        "write SELECT",
        "`.snapshots`, and `DESCRIBE EXTENDED`",
    ),
    no(
        "ALTER TABLE … CREATE | DROP TAG, BRANCH",
        "ALTER TABLE {db}.t CREATE TAG x",
        "write CALL lake.system.tag",
        "`CALL lake.system.tag`; a table has no branches",
    ),
    no(
        "ALTER TABLE … WRITE ORDERED BY",
        "ALTER TABLE {db}.t WRITE ORDERED BY id",
        "write CALL lake.system.optimize",
        "`CALL lake.system.optimize` with `sort_by`",
    ),
]


def test_statements(lake, tmp_path, subtests):
    for statement in STATEMENTS:
        with subtests.test(statement.name):
            for text in statement.sql:
                text = text.replace("{tmp}", str(tmp_path)).replace("{path}", str(lake.path))
                if statement.expected:
                    with pytest.raises(PySparkException, match=statement.expected):
                        lake.sql(text)
                else:
                    lake.sql(text).collect()


def test_the_docs_have_the_same_table():
    rows = [line for line in DOCS.read_text().splitlines() if line.startswith("| `")]
    assert [s.row for s in STATEMENTS if s.row not in rows] == []
