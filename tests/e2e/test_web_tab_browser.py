"""The tab in a real browser. Pictures are left in the test's folder: look at them after changing the panel."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

import pytest
from locust_web import locust_web, wait_for

if TYPE_CHECKING:
    from pathlib import Path

webdriver = pytest.importorskip("selenium.webdriver")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="Chromium or chromedriver is not installed"),
]

SWITCHES = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--window-size=1500,1400",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
CELLS = """
const panel = document.getElementById("pd-panel");
if (!panel || panel.hidden) return [];
const rows = [...panel.shadowRoot.querySelectorAll("tr[data-tier]")];
return rows.map((row) => [...row.cells].map((cell) => cell.innerText));
"""
TEXT = 'return document.getElementById("pd-panel").shadowRoot.querySelector("div").innerText'
THEME = 'return document.getElementById("pd-panel").dataset.theme'
TOGGLE_THEME = "[...document.querySelectorAll('header button')].at(-1).click()"
CURVES = 'return document.getElementById("pd-panel").shadowRoot.querySelectorAll("path.curve").length'


@pytest.fixture
def chromium(tmp_path):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for switch in (*SWITCHES, f"--user-data-dir={tmp_path / 'chromium'}", "--lang=en"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    browser.set_page_load_timeout(30)
    browser.implicitly_wait(5)
    yield browser
    browser.quit()


def complaints(browser):
    return [entry for entry in browser.get_log("browser") if entry["level"] in {"SEVERE", "WARNING"}]


def open_tab(browser, name):
    """Click on a tab of Locust's, once React has drawn it."""

    def click():
        tabs = [
            tab for tab in browser.find_elements("css selector", "[role=tab]") if tab.text.upper() == name
        ]
        for tab in tabs:
            tab.click()
        return tabs

    wait_for(click)


def picture(browser, path: Path):
    browser.save_screenshot(str(path))
    return path.stat().st_size > 10_000


def test_the_tab_shows_a_run_while_it_goes_on(simulator, tmp_path, chromium):
    service = simulator("--time-scale", "0.3")
    options = (
        "--host",
        service.url,
        "--pd-max-tokens",
        "16",
        "--pd-tiers",
        "short,medium",
        "--users",
        "4",
        "--spawn-rate",
        "4",
    )
    with locust_web(tmp_path / "run", *options) as web:
        chromium.get(f"{web.url}/")
        chromium.find_element("css selector", "button[type=submit]").click()
        open_tab(chromium, "CHARTS")
        assert chromium.execute_script(CELLS) == []
        open_tab(chromium, "PD")
        wait_for(lambda: len(chromium.execute_script(CELLS)) == 2)
        before = chromium.execute_script(CELLS)
        wait_for(lambda: chromium.execute_script(CELLS) != before)
        wait_for(lambda: chromium.execute_script(CURVES) == 2)
        assert [row[0] for row in chromium.execute_script(CELLS)] == ["short", "medium"]
        # Locust's plain table of the same numbers is there for pages without our script, and hidden in ours.
        assert [
            one.is_displayed() for one in chromium.find_elements("class name", "MuiTableContainer-root")
        ] == [False]
        time.sleep(4)
        assert picture(chromium, tmp_path / "tab-light.png")

        chromium.execute_script(TOGGLE_THEME)
        wait_for(lambda: chromium.execute_script(THEME) == "dark")
        assert picture(chromium, tmp_path / "tab-dark.png")

        open_tab(chromium, "STATISTICS")
        wait_for(lambda: chromium.execute_script(CELLS) == [])
        wait_for(lambda: chromium.find_element("class name", "MuiTableContainer-root").is_displayed())

        chromium.get(f"{web.url}/pd/?lang=zh")
        wait_for(lambda: "运行中" in chromium.execute_script(TEXT))
        assert picture(chromium, tmp_path / "page-zh.png")
        web.stop()
        wait_for(lambda: "已停止" in chromium.execute_script(TEXT))
        assert complaints(chromium) == []
