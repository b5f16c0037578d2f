"""The examples that need no Spark. Those that do are in tests/spark/test_examples.py."""

from examples import clickstream, tenants


def test_tenants(tmp_path):
    figures = tenants.main(tmp_path, 4_000)
    assert figures["alone"] == {"acme"}
    assert figures["first"] == 0
    assert all("refund" in text or "outage" in text for text in figures["texts"])
    assert figures["removed"] > 800
    assert figures["left"] == ["acme", "initech", "umbrella"]
    assert not figures["folder"].exists()
    assert figures["ok"]


def test_clickstream(tmp_path):
    figures = clickstream.main(tmp_path, 480)
    assert figures["rows_before"] == 480
    assert 0 < figures["rows_after"] < 60
    assert figures["both"] == 960
    assert 0 < figures["moved"] < 60
    assert figures["count"] == 6 * 480
    assert figures["ok"]
