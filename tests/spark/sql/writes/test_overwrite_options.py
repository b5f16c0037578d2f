"""`replaceWhere` and `partitionOverwriteMode`: options that say which rows a write replaces."""

import pytest
from pyspark.errors import AnalysisException

from tests.spark.needs import needs

ALL = [(0, "0"), (1, "1"), (2, "0"), (3, "1")]
WHERE, MODE = {"replaceWhere": "p = '0'"}, {"partitionOverwriteMode": "dynamic"}
MODE_NAME = "partitionOverwriteMode"
CONF = f"spark.sql.sources.{MODE_NAME}"


@pytest.fixture(scope="module")
def made(shared_lake):
    shared_lake.sql("CREATE TABLE {db}.t (id INT, p STRING) PARTITIONED BY (p)")
    shared_lake.sql("INSERT INTO {db}.t VALUES (0, '0'), (1, '1'), (2, '0'), (3, '1')")
    return shared_lake


@pytest.fixture
def table(made):
    """A table with four rows, in every test."""
    yield made
    if rows(made) != ALL:
        made.open("t").rollback(2)


@pytest.fixture(scope="module")
def new(spark):
    """A frame with one row, of the partition 0."""
    return spark.sql("SELECT 9 AS id, '0' AS p")


@pytest.fixture
def dynamic(spark):
    """The session's own mode is dynamic for the rest of the test."""
    spark.conf.set(CONF, "dynamic")
    yield
    spark.conf.unset(CONF)


def rows(lake):
    return sorted(map(tuple, lake.open("t").scan().to_arrow().to_pandas().to_numpy().tolist()))


def insert(table, frame, **options):
    frame.write.mode("overwrite").options(**options).insertInto(table["t"])


def save(table, frame, **options):
    writer = frame.write.format("phalanx").mode("overwrite").options(**options)
    writer.save(str(table.path / "t"))


class TestReplaceWhere:
    @pytest.mark.parametrize("write", [insert, save])
    def test_it_replaces_what_matches(self, table, new, write):
        write(table, new, REPLACEwhere="p = '0'")
        assert rows(table) == [(1, "1"), (3, "1"), (9, "0")]

    def test_rows_outside_of_it_come_too(self, table, new, dynamic):
        """As `writeTo(…).overwrite(condition)` has it; it goes before the mode of the session."""
        insert(table, new, replaceWhere="id = 1")
        assert rows(table) == [(0, "0"), (2, "0"), (3, "1"), (9, "0")]

    def test_in_sql(self, table):
        option = "WITH ('replaceWhere' = 'p = \\'0\\'')"
        table.sql(f"INSERT OVERWRITE {{db}}.t {option} VALUES (9, '0')")
        assert rows(table) == [(1, "1"), (3, "1"), (9, "0")]

    @pytest.mark.parametrize("option", ["'replaceWhere' = 'id > 1'", f"'{MODE_NAME}' = 'static'"])
    def test_beside_a_partition(self, lake, dynamic, option):
        """Both say what is replaced, so that nobody can know which rows are meant."""
        lake.sql("CREATE TABLE {db}.u (id INT, p STRING, q STRING) PARTITIONED BY (p, q)")
        lake.sql("INSERT INTO {db}.u VALUES (1, 'a', 'x'), (2, 'b', 'y')")
        with pytest.raises(AnalysisException, match="PARTITION already says"):
            lake.sql(
                f"INSERT OVERWRITE {{db}}.u WITH ({option}) PARTITION (p = 'a', q) SELECT 9, 'n'"
            )
        lake.sql("INSERT OVERWRITE {db}.u PARTITION (p = 'a', q) SELECT 9, 'x'")
        assert lake.rows("SELECT * FROM {db}.u") == [(2, "b", "y"), (9, "a", "x")]

    @pytest.mark.parametrize("condition", ["nope = 1", "p = ", "hash(id) = 1"])
    def test_a_condition_that_is_none(self, table, new, condition):
        with pytest.raises(AnalysisException):
            insert(table, new, replaceWhere=condition)
        assert rows(table) == ALL

    def test_a_path_without_a_table(self, lake, new, tmp_path):
        path = str(tmp_path / "new")
        writer = new.write.format("phalanx").mode("overwrite").options(**WHERE)
        for _ in range(2):
            writer.save(path)
            (row,) = lake.spark.read.format("phalanx").load(path).collect()
            assert tuple(row) == (9, "0")


class TestPartitionOverwriteMode:
    @pytest.mark.parametrize(
        ("write", "name"), [(insert, "overwrite-mode"), (save, "partitionOverwriteMode")]
    )
    def test_dynamic(self, table, new, write, name):
        write(table, new, **{name: "Dynamic"})
        assert rows(table) == [(1, "1"), (3, "1"), (9, "0")]

    def test_static(self, table, new, dynamic):
        insert(table, new, partitionOverwriteMode="static")
        assert rows(table) == [(9, "0")]

    def test_an_append_replaces_nothing(self, table, new):
        new.write.mode("append").options(**MODE).insertInto(table["t"])
        assert rows(table) == [*ALL, (9, "0")]


@needs("insert_schema_evolution")
def test_with_a_new_column(lake, new):
    new.writeTo(lake["t"]).partitionedBy("p").create()
    for number, options in enumerate((WHERE, MODE)):
        wider = new.selectExpr("*", f"1 AS more{number}").write.options(**options)
        wider = wider.format("phalanx").mode("overwrite").option("mergeSchema", "true")
        wider.save(str(lake.path / "t"))
    assert lake.rows("SELECT * FROM {db}.t") == [(9, "0", None, 1)]


@pytest.mark.parametrize("options", [WHERE, {"overwrite-mode": "dynamic"}])
@pytest.mark.parametrize("way", ["saveAsTable", "createOrReplace"])
def test_a_write_that_replaces_the_table_refuses_them(table, new, options, way):
    frame, target = new.write.mode("overwrite").options(**options), new.writeTo(table["t"])
    write = {
        "saveAsTable": lambda: frame.saveAsTable(table["t"]),
        "createOrReplace": target.options(**options).createOrReplace,
    }[way]
    with pytest.raises(AnalysisException, match=r"writeTo\(t\)\.overwrite") as caught:
        write()
    assert caught.value.getCondition() == "PHALANX_INVALID_INPUT"
    assert rows(table) == ALL


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda w: w.options(**WHERE).append(), "replaceWhere"),
        (lambda w: w.options(**WHERE).overwritePartitions(), "replaceWhere"),
        (
            lambda w: w.option("overwrite-mode", "static").overwritePartitions(),
            "partitionOverwriteMode",
        ),
    ],
)
def test_what_contradicts_the_write_is_refused(table, new, write, said):
    with pytest.raises(AnalysisException, match=said):
        write(new.writeTo(table["t"]))
    assert rows(table) == ALL


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({**WHERE, **MODE}, "only one of"),
        ({"partitionOverwriteMode": "static", "overwrite-mode": "dynamic"}, "overwrite"),
        ({"partitionOverwriteMode": "sometimes"}, "is 'static' or 'dynamic', not 'sometimes'"),
        ({"overwrite-mode": ""}, "is 'static' or 'dynamic'"),
    ],
)
def test_options_that_make_no_sense(table, new, options, said):
    with pytest.raises(AnalysisException, match=said):
        insert(table, new, **options)
    assert rows(table) == ALL


def test_a_part_of_the_table_that_a_statement_names(table):
    option = "WITH ('replaceWhere' = 'id = 1') PARTITION (p = '1')"
    with pytest.raises(AnalysisException, match="replaceWhere"):
        table.sql(f"INSERT OVERWRITE {{db}}.t {option} VALUES (7)")
    assert rows(table) == ALL
