"""The pictures of docs/explore.md, made anew by `python -m tests.explore.screenshots`."""

import tempfile
from pathlib import Path

import pyarrow as pa

import phalanx
from phalanx.cli.demo import SCHEMA, events
from phalanx.explore.server import running
from tests.explore.test_browser import Page, chromium

IMAGES = Path(__file__).parents[2] / "docs" / "images"
WHERE = "country IN ('JP', 'DE') AND ts < '2025-02-10' AND id = 2000017"


def table_of(uri: str) -> phalanx.Table:
    """A table with some history: appends, a cleanup, another column and another partitioning."""
    table = phalanx.create(uri, SCHEMA, ["months(ts)", "country"])
    for number in range(9):
        table.append(events(number * 20_000, 5_000 * (1 + number % 4), 40 * (number + 1), number))
    table.tag("before-cleanup")
    table.delete("amount < 3 AND country = 'FR'")
    table.add_column("campaign", "string", "none")
    table.update({"campaign": "'spring'"}, "ts >= '2025-03-01' AND ts < '2025-04-01'")
    table.evolve_partitioning(["days(ts)", "country", "bucket(4, id)"])
    more = events(2_000_000, 15_000, 20, 77)
    table.append(more.append_column("campaign", pa.array(["winter"] * more.num_rows)))
    table.optimize("country = 'US'")
    return table


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        chromium("--window-size=1366,860") as driver,
        running(table_of(f"{folder}/lake/events")) as explorer,
    ):
        page = Page(driver, explorer.address)
        for theme in ("light", "dark"):
            for view in ("partitions", "pruning", "history"):
                page.open(view)
                page.run("document.documentElement.dataset.theme = arguments[0]", theme)
                page.run("document.getElementById('uri').textContent = 's3://lake/events'")
                if view == "pruning":
                    page.filter(WHERE)
                    page.until(lambda: page.all(".node.part"))
                page.until(lambda: not page.run("return document.getAnimations().length"))
                driver.save_screenshot(f"{IMAGES}/explore-{view}-{theme}.png")


if __name__ == "__main__":
    main()
