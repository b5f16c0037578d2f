"""What the catalog stores of a statement, without a Spark session."""

import json

import pytest

import phalanx
from tests.spark.door import call, catalog

SCHEMA = {
    "type": "struct",
    "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
}


@pytest.mark.parametrize("mode", ["create", "replace"])
def test_options_are_not_stored(tmp_path, mode):
    """Spark sends what stands in OPTIONS twice, and some of it is secret."""
    request = {
        "catalog": catalog(warehouse=str(tmp_path)),
        "ident": ["default", "t"],
        "mode": "create",
        "schema": json.dumps(SCHEMA),
        "partitioning": [],
        "properties": {},
    }
    if mode == "replace":
        call("commit_staged", table=call("stage_table", **request)["handle"])
    given = {
        "team": "us",
        "provider": "phalanx",
        "secret_access_key": "hush",
        "option.secret_access_key": "hush",
        "storage.session_token": "hush",
        "option.storage.session_token": "hush",
    }
    found = call("stage_table", **{**request, "mode": mode, "properties": given})
    assert "hush" not in json.dumps(found)
    call("commit_staged", table=found["handle"])
    table = phalanx.open(tmp_path / "default" / "t")
    assert table.properties == {"team": "us"}
    stored = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert stored
    assert not any(b"hush" in path.read_bytes() for path in stored)


@pytest.mark.parametrize("statement", ["create", "add"])
def test_a_day_of_the_month_is_warned_of(tmp_path, caplog, statement):
    at = {"catalog": catalog(warehouse=str(tmp_path)), "ident": ["default", "t"]}
    fields = [{"name": "ts", "type": "timestamp", "nullable": True, "metadata": {}}]
    day = [{"name": "day", "args": [{"column": ["ts"]}]}]
    staged = call(
        "stage_table",
        **at,
        mode="create",
        schema=json.dumps({"type": "struct", "fields": fields}),
        partitioning=day if statement == "create" else [],
        properties={},
    )
    if statement == "add":
        assert not caplog.text
        call("commit_staged", table=staged["handle"])
        call("alter_partitioning", **at, add="day(ts)", drop=None)
    assert "write days(ts)" in caplog.text
