"""Properties in SQL: which are refused, and at which statements."""

import pytest
from pyspark.errors import AnalysisException

from tests.table.test_properties import BAD, set_unchecked


@pytest.mark.parametrize(("values", "message"), BAD)
def test_bad_values(lake, values, message):
    [(name, value)] = values.items()
    bad = f"TBLPROPERTIES ('{name}' = '{value}')"
    for statement in (
        f"CREATE TABLE {{db}}.new (id INT) {bad}",
        f"CREATE TABLE {{db}}.new {bad} AS SELECT 1 AS id",
        f"CREATE OR REPLACE TABLE {{db}}.new (id INT) {bad}",
    ):
        with pytest.raises(AnalysisException, match=message):
            lake.sql(statement)
    assert lake.rows("SHOW TABLES IN {db}") == []
    lake.sql("CREATE TABLE {db}.t (id INT)")
    for statement in (
        f"REPLACE TABLE {{db}}.t (id BIGINT) {bad}",
        f"REPLACE TABLE {{db}}.t {bad} AS SELECT 1 AS id",
        f"ALTER TABLE {{db}}.t SET {bad}",
    ):
        with pytest.raises(AnalysisException, match=message):
            lake.sql(statement)
    assert lake.open("t").version == 1


def test_a_transaction_id_that_a_table_has_is_not_that_of_its_writes(lake):
    """Every write but the first would be taken for a repetition of it."""
    lake.sql("CREATE TABLE {db}.t (id INT) PARTITIONED BY (id)")
    set_unchecked(lake.open("t"), transaction_id="x")
    lake.sql("INSERT INTO {db}.t VALUES (1)")
    lake.sql("INSERT INTO {db}.t VALUES (2), (3)")
    assert lake.rows("SELECT * FROM {db}.t") == [(1,), (2,), (3,)]
    lake.sql("UPDATE {db}.t SET id = 20 WHERE id = 2")
    lake.sql("DELETE FROM {db}.t WHERE id % 2 = 1")
    assert lake.rows("SELECT * FROM {db}.t") == [(20,)]
    lake.sql("ALTER TABLE {db}.t UNSET TBLPROPERTIES ('transaction_id')")
    assert lake.open("t").properties == {}


def test_a_bad_isolation_that_a_table_has(lake):
    lake.sql("CREATE TABLE {db}.t (id INT)")
    lake.sql("INSERT INTO {db}.t VALUES (1)")
    set_unchecked(lake.open("t"), isolation="nonsense")
    assert lake.rows("SELECT * FROM {db}.t") == [(1,)]
    with pytest.raises(AnalysisException, match="the property isolation is 'serializable' or"):
        lake.sql("INSERT INTO {db}.t VALUES (2)")
    lake.sql("ALTER TABLE {db}.t SET TBLPROPERTIES ('isolation' = 'snapshot')")
    lake.sql("INSERT INTO {db}.t VALUES (2)")
    assert lake.rows("SELECT * FROM {db}.t") == [(1,), (2,)]


def test_the_dimension_of_a_vector_cannot_be_changed(lake):
    lake.sql("CREATE TABLE {db}.t (v ARRAY<FLOAT>) TBLPROPERTIES ('vector.v.dimension' = '2')")
    with pytest.raises(AnalysisException, match=r"the property 'vector.v.dimension' cannot be"):
        lake.sql("ALTER TABLE {db}.t SET TBLPROPERTIES ('vector.v.dimension' = '3')")
