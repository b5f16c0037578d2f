"""Tables and plans in notebooks."""

import phalanx


def test_a_table(tmp_path):
    table = phalanx.create(tmp_path / "t", [{"id": 1, "<b>x</b>": "a"}], ["<b>x</b>"])
    html = table._repr_html_()
    assert "&lt;b&gt;x&lt;/b&gt;" in html
    assert "<b>x</b>" not in html
    assert "1 row" in html
    assert "version 1" in html


def test_a_plan(tmp_path):
    rows = [{"id": n, "kind": f"<i>{n}"} for n in range(20)]
    plan = phalanx.create(tmp_path / "t", rows, ["kind"]).scan(where="id < 30").plan()
    html = plan._repr_html_()
    assert "kind=&lt;i&gt;0" in html
    assert "<i>" not in html
    assert "and 10 more" in html
    assert repr(plan) == "<plan: 20 of 20 partitions, 0 pruned>"
