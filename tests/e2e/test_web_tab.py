from __future__ import annotations

import io
import json
import re
import zipfile
from statistics import fmean

import pytest
from locust_process import ROOT, own_port
from locust_web import locust_web, wait_for

from pd_locust.summary import percentile

pytestmark = pytest.mark.e2e

KEY = "sk-tab-0123456789abcdef"
QUICK = ("--pd-max-tokens", "8", "--pd-tiers", "short,medium")
ROUTES = (
    "/pd/",
    "/pd/panel.js",
    "/pd/live",
    "/pd/metrics",
    "/pd/requests.csv",
    "/pd/report.html",
    "/pd/tables.zip",
)
LOCUSTFILES = ROOT / "locustfiles"
WITH_LOGIN = """
import sys
sys.path.insert(0, {folder!r})
from flask_login import UserMixin
from locust import events
from pd_stream import *

class Guest(UserMixin):
    id = "guest"

@events.init.add_listener
def _(environment, **_kwargs):
    environment.web_ui.app.secret_key = "only a test"
    login_manager = environment.web_ui.login_manager
    login_manager.user_loader(lambda _id: None)
    login_manager.request_loader(lambda request: Guest() if request.headers.get("X-Guest") == "yes" else None)
"""


def processes(count):
    if count == 1:
        return ()
    return own_port("--processes", str(count))


def finished(web, at_least, tier="short"):
    return lambda: ((web.tier(tier) or {}).get("level") or {}).get("sampled", 0) >= at_least


def template_args(page):
    return json.loads(re.search(r"window.templateArgs = (.*)", page)[1])


def latencies(records, column):
    return sorted(
        float(one[column])
        for one in records
        if one["part"] == "sample" and one["outcome"] == "success" and one[column]
    )


def figures(values):
    return {
        "mean": fmean(values) if values else None,
        **{f"p{percent}": percentile(values, percent) for percent in (50, 95, 99)},
    }


@pytest.mark.parametrize("count", [1, 2], ids=["one process", "two workers"])
def test_the_numbers_are_those_of_the_records(simulator, tmp_path, count):
    service = simulator("--time-scale", "0.3")
    with locust_web(tmp_path / "run", "--host", service.url, *QUICK, *processes(count)) as web:
        web.swarm(host=service.url)
        # Either tier's sample: a worker that reports late leaves the other one ramping up.
        wait_for(lambda: all((web.tier(tier) or {}).get("finished", 0) > 40 for tier in ("short", "medium")))
        wait_for(lambda: finished(web, 30)() or finished(web, 30, "medium")())
        running = web.live()
        web.stop()
        shown = {tier["tier"]: tier for tier in web.live()["tiers"]}
        rows = {
            row["name"]: row
            for one in web.get("/stats/requests").json()["extended_stats"]
            for row in one["data"]
        }
        records = web.records()
        metrics = web.get("/pd/metrics").text
        downloaded = web.get("/pd/requests.csv")
        tables = web.get("/pd/tables.zip")
        report = web.get("/pd/report.html")

    assert 0 < running["in_flight"] <= 4
    assert running["state"] == "running"
    assert list(shown) == ["short", "medium"]
    assert shown["short"]["in_flight"] == 0
    for tier, seen in shown.items():
        ended = [one for one in records if one["tier"] == tier and one["outcome"] != "cut"]
        level = seen["level"]
        assert seen["finished"] == len(ended)
        assert seen["failed"] == 0
        assert f'requests_total{{tier="{tier}",outcome="success"}} {len(ended)}\n' in metrics
        assert level["sampled"] == sum(one["part"] == "sample" for one in ended)
        for metric in ("ttft_ms", "tpot_ms"):
            expected = figures(latencies(ended, metric))
            assert level[metric]["count"] == len(latencies(ended, metric))
            assert {name: level[metric][name] for name in expected} == pytest.approx(expected, abs=1e-9), (
                tier,
                metric,
            )
        assert rows[tier]["ttft_p95"] == (
            "n/a" if not level["sampled"] else round(level["ttft_ms"]["p95"], 3)
        )
    assert downloaded.content == (tmp_path / "run_requests.csv").read_bytes()
    with zipfile.ZipFile(io.BytesIO(tables.content)) as archive:
        names = archive.namelist()
    assert "run_report.md" in names
    assert "run_concurrency.csv" in names
    assert "run_requests.csv" not in names
    assert report.status_code == 200, report.text
    assert "</html>" in report.text


def test_the_tab_is_found_below_a_base_path_and_with_the_class_picker(simulator, tmp_path):
    service = simulator("--time-scale", "0.3")
    options = ("--host", service.url, "--pd-max-tokens", "8", "--class-picker")
    with locust_web(tmp_path / "run", *options, base_path="/load/test") as web:
        page = web.get("/").text
        assert web.live()["tiers"] == []
        web.swarm(host=service.url, user_classes="MediumUser")
        wait_for(lambda: web.tier("medium"))
        own_page, script = web.get("/pd/").text, web.get("/pd/panel.js").text
        assert web.get("/../../pd/live").status_code == 404
        names = [tier["tier"] for tier in web.live()["tiers"]]
        web.stop()
    arguments = template_args(page)
    assert {"title": "PD", "key": "pd"} in arguments["extended_tabs"]
    assert "pd" in {table["key"] for table in arguments["extended_tables"]}
    assert "./pd/requests.csv" in {file["href"] for file in arguments["extended_csv_files"]}
    assert '<script defer src="./pd/panel.js"></script></body>' in page
    assert names == ["medium"]
    # Nothing comes from elsewhere: an SVG's name is the only address there is.
    addresses = set(re.findall(r"https?://[^\"'`\s)]+", own_page + script))
    assert addresses == {"http://www.w3.org/2000/svg"}


def test_our_routes_ask_for_the_login_that_locusts_ask_for(simulator, tmp_path):
    service = simulator("--time-scale", "0.3")
    locustfile = tmp_path / "with_login.py"
    locustfile.write_text(WITH_LOGIN.format(folder=str(LOCUSTFILES)))
    options = ("--host", service.url, *QUICK, "--web-login")
    with locust_web(tmp_path / "run", *options, locustfile=locustfile, headers={"X-Guest": "yes"}) as web:
        web.swarm(host=service.url)
        wait_for(finished(web, 10))
        web.stop()
        welcome = {route: web.get(route).status_code for route in ROUTES}
        web.headers = {}
        refused = {route: web.get(route) for route in ("/stats/requests", *ROUTES)}
    assert set(welcome.values()) == {200}, welcome
    for route, answer in refused.items():
        assert answer.status_code == 302, route
        assert "/login" in answer.headers["Location"], route
        assert "short" not in answer.text, route


def test_a_second_run_begins_afresh_and_the_key_is_nowhere(simulator, tmp_path):
    service = simulator("--time-scale", "0.3", "--api-key", KEY)
    with locust_web(tmp_path / "run", "--host", service.url, *QUICK, "--pd-api-key", KEY) as web:
        assert web.get("/pd/requests.csv").text.count("\n") == 1
        assert web.get("/pd/tables.zip").status_code == 503  # nothing to report yet
        for run in ("1", "2"):
            web.swarm(host=service.url)
            wait_for(lambda run=run: sum(one["run"] == run for one in web.records()) > 20)
            web.stop()
        ended = {tier["tier"]: tier["finished"] for tier in web.live()["tiers"]}
        records = web.records()
        answers = {route: web.get(route).content for route in ("/", "/stats/requests", *ROUTES)}
    second = [one for one in records if one["run"] == "2" and one["outcome"] != "cut"]
    assert ended == {tier: sum(one["tier"] == tier for one in second) for tier in ended}
    for route, content in answers.items():
        assert KEY.encode() not in content, route


def test_a_search_shows_the_levels_it_has_held_and_its_answer(simulator, tmp_path):
    service = simulator("--time-scale", "0.05")
    options = (
        "--host", service.url, "--pd-tiers", "short", "--pd-max-tokens", "4", "--pd-start", "2", "--pd-max-users", "4",
        "--pd-slo", "ttft_mean<=2s",
    )  # fmt: skip
    with locust_web(tmp_path / "run", *options, locustfile=LOCUSTFILES / "pd_capacity.py") as web:
        web.swarm(host=service.url)
        wait_for(lambda: (web.tier("short") or {}).get("levels"))
        under_way = web.tier("short")
        wait_for(lambda: web.live()["state"] == "stopped")
        shown = web.tier("short")
        records = web.records()
    assert under_way["search"]["low"] in {None, 2, 4}
    assert (shown["search"]["end"], shown["search"]["low"], shown["search"]["most_left"]) == ("found", 4, 0)
    held = [level["users"] for level in shown["levels"]]
    assert held[0] == 2
    assert held.count(4) >= 2  # once found, once confirmed
    first = [one for one in records if one["phase"] == "sweep/short/2"]
    assert shown["levels"][0]["observed_ms"] == pytest.approx(fmean(latencies(first, "ttft_ms")), abs=1e-9)


def test_doubts_are_said_in_chinese_where_the_catalogue_has_them(simulator, tmp_path):
    service = simulator("--time-scale", "0.3", "--fault", "no-usage")
    with locust_web(tmp_path / "run", "--host", service.url, *QUICK) as web:
        web.swarm(host=service.url)
        wait_for(lambda: "counted by chunks" in str(web.live()["doubts"]))
        english, chinese = web.live(), web.live(lang="zh")
        web.stop()
    assert [one["code"] for one in english["doubts"]] == [one["code"] for one in chinese["doubts"]]
    assert "counted by chunks" in str(english["doubts"])
    assert "counted by chunks" not in str(chinese["doubts"])
