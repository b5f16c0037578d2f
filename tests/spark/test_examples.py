"""The examples in Spark, in the session of the tests."""

from examples import orders, pipeline


def test_orders(lake):
    figures = orders.main(lake.spark, f"lake.{lake.name}", 2_000)
    assert figures == {"joined": 2_000, "shuffles": 0, "total": sum(range(500)) * 4}


def test_pipeline(lake, tmp_path):
    figures = pipeline.main(lake.spark, f"lake.{lake.name}", tmp_path, 100)
    assert figures["raw"] == 200
    # Of 190 ids, every fourth has no country.
    assert figures["clean"] == figures["events"] == sum(id % 4 != 0 for id in range(190))
    assert len(figures["reports"]) == 3
    assert all(report.startswith("ok") for report in figures["reports"])
