"""The page in a real browser: what a person sees and does.

These tests need Chromium and its driver, which `make browser` installs.
"""

import contextlib
import shutil

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from phalanx.explore.server import STATIC, running
from tests.explore.conftest import HOSTILE

pytestmark = pytest.mark.browser

ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--window-size=1280,800",
)


class Page:
    """The page, as somebody uses it."""

    def __init__(self, driver, address):
        self.driver, self.address = driver, address

    def open(self, view="partitions"):
        self.driver.get("about:blank")
        self.driver.get(f"{self.address}#{view}")
        return self.ready(view)

    def go(self, view):
        self.click(f"#tab-{view}")
        return self.ready(view)

    def ready(self, view):
        self.until(lambda: self.one("#view").get_attribute("data-ready") == view)
        if view in ("partitions", "pruning"):
            self.until(lambda: self.all(".icicle svg"))
        return self

    def until(self, condition):
        # What was there a moment ago may have been drawn again.
        wait = WebDriverWait(self.driver, 30, 0.05, [StaleElementReferenceException])
        return wait.until(lambda _: condition())

    def one(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector="#view"):
        return self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def click(self, selector):
        self.until(lambda: self.one(selector).click() or True)

    def run(self, script, *values):
        return self.driver.execute_script(script, *values)

    def labels(self):
        """What the nodes of the tree are called."""
        script = "return [...document.querySelectorAll('.node')].map(n => n.ariaLabel)"
        return self.run(script)

    def click_node(self, start):
        """Click a node by the start of its label, when it is there."""
        self.until(lambda: any(label.startswith(start) for label in self.labels()))
        script = (
            "const node = [...document.querySelectorAll('.node')]"
            ".find(n => n.ariaLabel.startsWith(arguments[0]));"
            "node.dispatchEvent(new MouseEvent('click', {bubbles: true}))"
        )
        self.run(script, start)

    def type(self, keys):
        ActionChains(self.driver).send_keys(keys).perform()

    def filter(self, where):
        field = self.one("#where")
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(where, Keys.ENTER)
        self.until(lambda: self.all("#funnel") or self.all(".failure"))

    def selected(self):
        """How many leaves of all roots are left, as the tree says."""
        script = (
            "return [...document.querySelectorAll('.node.level-0')]"
            ".reduce((sum, n) => sum + Number(n.dataset.selected), 0)"
        )
        return self.run(script)


@contextlib.contextmanager
def chromium(*arguments):
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium is not installed"
    for argument in (*ARGUMENTS, *arguments):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture(scope="session")
def driver():
    with chromium() as driver:
        yield driver


@pytest.fixture
def page(driver, explorer):
    """The page of the small table; at the end, nothing was complained about."""
    yield Page(driver, explorer.address)
    complaints = [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    # A filter that was refused is an answer like any other.
    assert [entry for entry in complaints if "status of 400" not in entry["message"]] == []


@pytest.fixture(scope="module")
def large_page(driver, large):
    with running(large) as explorer:
        yield Page(driver, explorer.address)


def test_the_tree(page):
    page.open()
    assert page.text("#name") == "t"
    assert "27" in page.text("#facts")
    labels = page.until(page.labels)
    assert "spec v1, 12 leaves, 24 rows" in labels
    assert "ts_month = 2, 4 leaves, 8 rows" in labels
    page.click_node("ts_month = 2")
    page.until(lambda: "ts_month = 2" in page.text(".crumbs"))
    assert (
        page.text(".crumbs").replace("\n", " ") == "table / spec v1 / ts_year = 2025 / ts_month = 2"
    )
    page.until(lambda: len(page.labels()) == 5)
    page.click(".crumbs button")
    page.until(lambda: len(page.labels()) > 5)


def test_rows_of_a_leaf(page):
    page.open()
    page.click_node("country = US")
    page.until(lambda: page.all("#drawer table"))
    assert page.text("#drawer h2") == "ts_year=2025 / ts_month=1 / country=US"
    assert len(page.all("#drawer tbody tr")) == 2
    assert "2025-01-05 00:00:00+00:00" in page.text("#drawer")
    page.type(Keys.ESCAPE)
    assert not page.one("#drawer").is_displayed()


def test_width_and_color(page):
    page.open()
    page.click("[data-value=leaves]")
    page.until(lambda: page.one("[data-value=leaves]").get_attribute("aria-checked") == "true")
    page.click("[data-value=small]")
    page.until(lambda: page.all(".node.heat-5"))
    assert "32 MiB" in page.text(".legend")


def test_the_keyboard(page):
    page.open()
    page.until(page.labels)
    page.run("document.querySelector('.node[tabindex=\"0\"]').focus()")
    page.type(Keys.ARROW_DOWN)
    label = "return document.activeElement.ariaLabel"
    assert page.run(label).startswith("ts_year = 2025")
    page.type(Keys.ARROW_DOWN)
    page.type(Keys.ARROW_RIGHT)
    assert page.run(label).startswith("ts_month = 2")
    assert page.one("#tip").is_displayed()
    page.type(Keys.ENTER)
    page.until(lambda: "ts_month = 2" in page.text(".crumbs"))
    page.type("3")
    page.ready("history")
    page.type("2")
    page.ready("pruning")


def test_the_simulator(page):
    page.open("pruning")
    page.filter("country = 'US' AND ts >= '2025-02-01'")
    assert "11 of 13 leaves pruned" in page.text(".outcome")
    page.until(lambda: page.selected() == 2)
    assert page.all(".node.dead")
    assert "country = 'US'" in page.text("#funnel")
    assert "ts_month = 1 does not fit" in page.text()
    for step, left in ((0, 13), (1, 13 - 1), (2, 8), (3, 2)):
        page.run(
            "const range = document.querySelector('.stepper input'); range.value = arguments[0];"
            "range.dispatchEvent(new Event('input'))",
            step,
        )
        page.until(lambda left=left: page.selected() == left)
    page.filter("nope = 1")
    page.until(lambda: "nope" in page.text(".outcome"))
    page.one("#where").send_keys(Keys.CONTROL, "a")
    page.one("#where").send_keys(Keys.DELETE)
    page.until(lambda: not page.all(".node.dead"))


def test_the_simulator_steps_by_itself(page):
    page.open("pruning")
    page.filter("country = 'US' AND ts >= '2025-02-01'")
    page.until(lambda: page.selected() == 2)
    page.click("#play")
    page.until(lambda: page.selected() == 13)
    page.until(lambda: page.selected() == 2)


def test_hostile_values_are_text(page):
    page.open()
    page.until(lambda: any("<img src=x" in label for label in page.labels()))
    page.click_node("country = <img")
    page.until(lambda: page.all("#drawer table"))
    assert HOSTILE in page.text("#drawer h2")
    assert HOSTILE in page.text("#drawer table")
    page.type(Keys.ESCAPE)
    page.go("pruning")
    page.filter("country <> 'US'")
    page.until(lambda: "<script>" in page.text())
    for view in ("history", "schema", "upkeep"):
        page.go(view)
    assert page.driver.title == "t · Phalanx"
    assert page.all("img") == []
    scripts = [script.get_attribute("src") for script in page.all("script")]
    assert scripts == [f"{page.address}static/app.js"]


def test_history(page):
    page.open("history")
    assert len(page.all(".moment")) == 6
    assert "first" in page.text(".tag")
    assert "From version 5 to 6" in page.text("#diff")
    page.click("[data-side=before][data-version='1']")
    page.until(lambda: "From version 1 to 6" in page.text("#diff"))
    assert "0 → 27" in page.text("#diff")
    assert "note was added" in page.text("#diff")
    page.click("button[title='Look at version 2']")
    page.ready("partitions")
    assert page.text("#version").startswith("version 2 of 6")
    assert "24" in page.text("#facts")
    labels = page.until(page.labels)
    assert not any(label.startswith("spec v2") for label in labels)


def test_schema_and_upkeep(page):
    page.open("schema")
    assert "note was added, as string" in page.text()
    assert "v2" in page.text(".specs .current")
    page.go("upkeep")
    page.until(lambda: "earlier specs" in page.text("#advice"))
    page.click("#run-check")
    page.until(lambda: "The table is whole" in page.text("#check"))


def test_light_and_dark(page):
    page.open()
    background = "return getComputedStyle(document.body).backgroundColor"
    before = page.run(background)
    page.click("#theme")
    after = page.run(background)
    assert {before, after} == {"rgb(246, 247, 249)", "rgb(14, 16, 21)"}


@pytest.mark.parametrize("view", ["partitions", "pruning", "history", "schema", "upkeep"])
def test_nothing_is_wider_than_a_laptop(page, view):
    page.open(view)
    assert page.run("return document.documentElement.scrollWidth <= window.innerWidth")


def test_100_000_leaves(large_page):
    page = large_page.open()
    assert "100 k" in page.text("#facts")
    assert 30 < len(page.until(page.labels)) < 3_000
    page.go("pruning")
    page.filter("country = 'C03' AND ts >= '2024-06-01'")
    page.until(lambda: page.selected() == 2_850)
    assert "97,150 of 100,000 leaves pruned" in page.text(".outcome")
    page.go("partitions")
    for start in ("spec v1", "ts_year = 2024", "ts_month = 5", "ts_day = 3", "country = C07"):
        page.click_node(start)
        page.until(lambda start=start: page.text(".here").startswith(start))
    last = "id_bucket = 4, 1 leaf"
    page.until(lambda: any(label.startswith(last) for label in page.labels()))


def test_the_page_never_parses_html():
    sources = "".join(path.read_text() for path in STATIC.glob("*.js"))
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser"):
        assert word not in sources
    assert "eval(" not in sources
