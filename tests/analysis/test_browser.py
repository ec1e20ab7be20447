"""The pages in a real browser. Its pictures stay in pytest's directory for temporary files, to be looked at."""

import base64
import shutil
import time

import pytest

from pd_locust.analysis.compare import compare
from pd_locust.analysis.compare_view import comparison_page
from pd_locust.analysis.page import to_html
from pd_locust.analysis.report import build
from pd_locust.language import Language, Speech

webdriver = pytest.importorskip("selenium.webdriver")

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="Chromium or chromedriver is not installed"),
]
SWITCHES = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for switch in (*SWITCHES, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    browser.set_page_load_timeout(30)
    yield browser
    browser.quit()


def show(browser, path, *, dark=False, width=1240):
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(path.as_uri())


def take_picture(browser, path):
    """The whole page, however long."""
    size = browser.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
    whole = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": whole})
    path.write_bytes(base64.b64decode(shot["data"]))


def fits(browser):
    return browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")


@pytest.fixture(scope="module")
def pages(runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    reports = {name: build(runs[name]) for name in ("base", "slow")}
    for language in Language:
        say = Speech.of(language)
        (folder / f"report_{language}.html").write_text(to_html(reports["base"], say))
        compared = comparison_page([compare(reports["base"], reports["slow"])], say)
        (folder / f"compare_{language}.html").write_text(compared)
    return folder


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("language", list(Language))
@pytest.mark.parametrize("kind", ["report", "compare"])
def test_a_page_opens_without_a_complaint_and_fits_its_window(browser, pages, kind, language, dark):
    show(browser, pages / f"{kind}_{language}.html", dark=dark)

    take_picture(browser, pages / f"{kind}_{language}_{'dark' if dark else 'light'}.png")

    assert browser.get_log("browser") == []
    assert len(browser.find_elements("css selector", "svg[viewBox]")) >= 3
    assert fits(browser)
    background = browser.find_element("css selector", "body").value_of_css_property("background-color")
    assert background == ("rgba(21, 24, 28, 1)" if dark else "rgba(255, 255, 255, 1)")


def test_a_narrow_window_has_nothing_beyond_its_edge(browser, pages):
    show(browser, pages / "report_en.html", width=420)

    assert fits(browser)


def test_no_text_of_a_chart_leaves_its_picture(browser, pages):
    show(browser, pages / "report_zh.html")

    outside = browser.execute_script(
        """return [...document.querySelectorAll('svg[viewBox] text')].filter(text => {
             const box = text.getBoundingClientRect(), frame = text.ownerSVGElement.getBoundingClientRect();
             return box.left < frame.left - 1 || box.right > frame.right + 1;
           }).map(text => text.textContent)"""
    )
    assert outside == []


def test_a_point_under_the_pointer_says_its_numbers(browser, pages):
    show(browser, pages / "report_en.html")
    point = browser.find_element("css selector", "#ttft_short circle.pass")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", point)

    webdriver.ActionChains(browser).move_to_element(point).perform()

    assert browser.find_element("id", "tip").text.startswith("16 users · ")


def test_a_table_is_downloaded_by_a_click(browser, pages, tmp_path):
    browser.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    show(browser, pages / "report_en.html")

    browser.execute_script("document.querySelector('a[download=\"base_levels.csv\"]').click()")

    file, patience = tmp_path / "base_levels.csv", time.monotonic() + 20
    while not file.exists() and time.monotonic() < patience:
        time.sleep(0.05)
    header, *rows = file.read_text().splitlines()
    assert header.startswith("run,phase,tier,users,slo,verdict,requests,")
    assert len(rows) == 4
