"""The examples in Spark, in the session of the tests."""

from examples import demo, orders, pipeline


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


def test_demo(lake):
    figures = demo.main(lake.spark, f"lake.{lake.name}", lake.path, 1_000)
    assert figures["partitions"] == figures["total"] == 48
    assert figures["selected"] == 4
    assert figures["counts"] == dict.fromkeys(["DE", "FR", "JP", "US"], 250)
    assert figures["from_manifest"]
    assert (figures["joined"], figures["shuffles"]) == (1_000, 0)
    assert (figures["countries"], figures["nearest"]) == (["FR"], 41)
    assert figures["deleted"] == 250
    assert (figures["day"], figures["specs"]) == (1, 2)
    assert (figures["then"], figures["now"]) == (1_000, 846)
