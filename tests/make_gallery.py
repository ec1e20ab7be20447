"""Makes docs/gallery.md and its pictures from real runs against the simulated service. Four minutes.

python tests/make_gallery.py        needs Chromium and chromedriver
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from locust_process import ROOT, running_simulator
from locust_web import LocustWeb, locust_web, wait_for
from selenium import webdriver

if TYPE_CHECKING:
    from collections.abc import Iterator

PICTURES = ROOT / "docs" / "gallery"
IN_PANEL = "document.getElementById('pd-panel').shadowRoot.querySelector"
LOCUSTFILES = Path("locustfiles")
SWITCHES = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update",
)  # fmt: skip
# The protocol, small: two tiers and a sweep that finds the limit of one.
PROTOCOL = (
    "--headless", "--only-summary", "--pd-tiers", "short,long", "--pd-max-tokens", "32", "--pd-single-requests", "3",
    "--pd-requests", "500", "--pd-concurrency-tier", "short", "--pd-levels", "16,32,64,96,128",
)  # fmt: skip
PAGE = """# Gallery

All of it is real: `python tests/make_gallery.py` runs the load against the simulated service, opens the pages in
Chromium and writes this page. Every HTML page is one file without external references.

## The report

`{before}_report.html`, written at the end of each run with `--csv`: verdicts first, then curves, each with its
numbers and as CSV.

![Report: verdicts and curves](gallery/report-light.webp)

Every request over time, levels shaded, the first wave in its own colour; dark where the system is.

![Report in the dark: distributions](gallery/report-dark.webp)

`pd-locust report {before} --lang zh`:

![Report in Chinese](gallery/report-zh.webp)

## Tab PD of Locust's web UI

A capacity search on its way, and at its end:

![Tab PD while a search goes on](gallery/tab-light.webp)
![Tab PD at the end, dark, in Chinese](gallery/tab-dark-zh.webp)

## Two runs compared

`pd-locust compare {before} {after} --html comparison.html`; the second service takes 15 % more time for everything:

![Two runs compared](gallery/compare.webp)

## In the terminal

The end of the search above:

```text
{search}
```

`{gate_command}` (exit code 3):

```text
{gate}
```

`{plan_command}`:

```text
{plan}
```
"""


def main() -> int:
    PICTURES.mkdir(parents=True, exist_ok=True)
    texts = {}
    with tempfile.TemporaryDirectory() as scratch, chromium() as browser:
        # Commands are shown as people type them: from where locustfiles/ is.
        os.chdir(scratch)
        LOCUSTFILES.symlink_to(ROOT / LOCUSTFILES)
        search = watch_a_search(browser, "capacity")
        texts["search"] = output("report", search)
        texts |= {"before": protocol("before", "1"), "after": protocol("after", "1.15")}
        page = Path(f"{texts['before']}_report.html").absolute().as_uri()
        show(browser, page)
        take(browser, "report-light")
        show(browser, page, dark=True)
        scroll_to(browser, "TTFT over time")
        take(browser, "report-dark")
        output("report", texts["before"], "--lang", "zh")
        show(browser, page)
        take(browser, "report-zh")
        output("compare", texts["before"], texts["after"], "--html", "comparison.html")
        show(browser, Path("comparison.html").absolute().as_uri())
        take(browser, "compare")
        for name, words in (
            ("gate", ("gate", texts["after"], "--baseline", texts["before"])),
            ("plan", ("plan", texts["before"], "--rate", "short=30,long=5", "--pairs", "3")),
        ):
            texts |= {name: output(*words), f"{name}_command": f"pd-locust {' '.join(words)}"}
    (ROOT / "docs" / "gallery.md").write_text(PAGE.format(**texts), encoding="utf-8")
    return 0


def watch_a_search(browser: Any, prefix: str) -> str:
    """Search the straight line to 48 users in the web UI, with pictures of the tab on the way and at the end."""
    options = ("--pd-tiers", "short", "--pd-max-tokens", "64")
    file = LOCUSTFILES / "pd_capacity.py"
    with (
        running_simulator("--profile", "linear") as service,
        locust_web(Path(prefix), "--host", service.url, *options, locustfile=file) as web,
    ):
        show(browser, f"{web.url}/")
        browser.find_element("css selector", "button[type=submit]").click()
        time.sleep(30)
        tabs = browser.find_elements("css selector", "[role=tab]")
        next(tab for tab in tabs if tab.text.upper() == "PD").click()
        time.sleep(5)
        take(browser, "tab-light")
        wait_for(lambda: ended(web), 180)
        time.sleep(3)
        browser.execute_script("[...document.querySelectorAll('header button')].at(-1).click()")
        browser.execute_script(f"{IN_PANEL}('.language button').click()")
        time.sleep(3)
        take(browser, "tab-dark-zh")
    hide_the_machine(prefix)
    return prefix


def ended(web: LocustWeb) -> bool:
    return web.get("/stats/requests").json()["state"] == "stopped"


def protocol(prefix: str, scale: str) -> str:
    """Run the small protocol against a service of its own."""
    with running_simulator("--jitter", "0.1", "--time-scale", scale) as service:
        command = [
            sys.executable, "-m", "locust", "-f", str(LOCUSTFILES / "pd_benchmark.py"), "--host", service.url,
            "--csv", prefix, "--pd-label", f"time_scale={scale}", *PROTOCOL,
        ]  # fmt: skip
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    hide_the_machine(prefix)
    output("report", prefix)
    return prefix


def hide_the_machine(prefix: str) -> None:
    file = Path(f"{prefix}_run.json")
    document = json.loads(file.read_text(encoding="utf-8"))
    document["host"]["platform"] = "Linux"
    file.write_text(json.dumps(document), encoding="utf-8")


def output(*words: str) -> str:
    """What a command prints, a hundred columns wide."""
    command = [sys.executable, "-m", "pd_locust.cli", *words]
    environment = {**os.environ, "COLUMNS": "100"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode in {0, 3}, done.stderr
    return done.stdout.strip("\n")


@contextmanager
def chromium() -> Iterator[Any]:
    """Start the distribution's browser with a profile of its own."""
    with tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or ""
        for switch in (*SWITCHES, f"--user-data-dir={profile}", "--lang=en"):
            options.add_argument(switch)
        browser = webdriver.Chrome(
            options=options, service=webdriver.ChromeService(shutil.which("chromedriver"))
        )
        browser.implicitly_wait(5)
        yield browser
        browser.quit()


def show(browser: Any, url: str, *, dark: bool = False) -> None:
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    size = {"width": 1240, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    browser.get(url)


def scroll_to(browser: Any, title: str) -> None:
    """Put the figure of this title at the top."""
    find = "[...document.querySelectorAll('h2, h3, figcaption')].find(one => one.textContent.startsWith(arguments[0]))"
    browser.execute_script(f"{find}.scrollIntoView()", title)


def take(browser: Any, name: str) -> None:
    options = {"format": "webp", "quality": 80}
    picture = browser.execute_cdp_cmd("Page.captureScreenshot", options)["data"]
    (PICTURES / f"{name}.webp").write_bytes(base64.b64decode(picture))


if __name__ == "__main__":
    sys.exit(main())
