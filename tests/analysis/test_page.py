import re
from urllib.parse import unquote

import pandas as pd
import pytest
from analysis.virtual import sweep, write_run

from pd_locust.analysis.page import to_html
from pd_locust.analysis.report import build
from pd_locust.language import Language, Speech

CHINESE = Speech.of(Language.ZH)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    prefix = tmp_path_factory.mktemp("swept") / "run"
    phases = [
        ("single/short", "short", 1, 10),
        ("concurrency/short/64", "short", 64, 300),
        *sweep("short", (16, 400), (64, 400), (400, 2400)),
    ]
    return build(write_run(prefix, phases))


def figures(html):
    return re.findall(r'<figure class="\w*" id="([^"]+)"', html)


def downloads(html):
    """Contents of all CSV downloads, by file name."""
    links = re.findall(r'<a download="([^"]+)" href="data:text/csv;charset=utf-8,([^"]+)"', html)
    return {name: unquote(content) for name, content in links}


@pytest.mark.parametrize("say", [Speech.of(Language.EN), CHINESE], ids=["en", "zh"])
def test_a_page_refers_to_nothing_outside_itself(swept, say):
    html = to_html(swept, say)

    references = re.findall(r'(?:src|href|action|data-src)="([^"]*)"|url\(([^)]*)\)|@import ([^;]*)', html)
    found = {next(filter(None, reference)) for reference in references}
    assert {address.split(",")[0] for address in found} == {"data:", "data:text/csv;charset=utf-8", "#hatch"}
    # The target's address is text; nothing else looks like one.
    assert set(re.findall(r"https?://[\w.:]+", html)) == set()


def test_the_answer_stands_before_the_first_chart(swept):
    html = to_html(swept)

    assert '<p class="figure">64 <small>users</small></p>' in html
    assert html.index("short: 64 users keep") < html.index("<svg viewBox")


def test_every_chart_of_a_sweep_is_there(swept):
    assert figures(to_html(swept)) == [
        *("ttft_short", "tpot", "throughput", "exchange"),
        *("timeline", "distribution_ttft", "distribution_tpot", "distribution_itl_p99"),
    ]


def test_levels_are_marked_by_their_verdicts_and_the_limit_is_a_line(swept):
    svg = to_html(swept).split('id="ttft_short"')[1].split("</figure>")[0]

    assert (svg.count('<circle class="pass"'), svg.count('<path class="fail"')) == (2, 1)
    assert svg.count('class="limit"') == 1
    assert svg.count('class="band"') == 2
    assert "400 users · mean" in svg


def test_the_numbers_of_every_chart_and_table_can_be_downloaded(swept):
    html = to_html(swept)

    files = downloads(html)
    assert set(files) == {
        *(f"run_{chart}.csv" for chart in figures(html)),
        *(f"run_{table}.csv" for table in ("single_stream", "concurrency", "capacity", "levels")),
    }
    header, *rows = files["run_ttft_short.csv"].splitlines()
    assert header == (
        "users,verdict,ttft_mean_ms,ttft_p50_ms,ttft_p95_ms,ttft_p99_ms,interval_low_ms,interval_high_ms"
    )
    assert [row.split(",")[:2] for row in rows] == [["16", "PASS"], ["64", "PASS"], ["400", "FAIL"]]
    assert files["run_timeline.csv"].startswith("series,sent_s,ttft_ms\n")


def test_chinese_pages_say_everything_in_chinese(swept):
    html = to_html(swept, CHINESE)

    assert '<html lang="zh-CN">' in html
    assert "首 token 延迟（TTFT）与并发：short" in html
    shown = re.sub(r"<script.*?</script>|<style.*?</style>|<[^>]*>", " ", html, flags=re.DOTALL)
    assert not re.findall(r"[a-z]+ [a-z]+ [a-z]+", shown)


def test_a_long_run_is_thinned_and_stays_small(files, success):
    files.write_requests(*(success(10 * n, users=8, ttft_ms=100 + n % 77) for n in range(20_000)))

    html = to_html(build(files.prefix))

    assert "2,4" in re.search(r"([\d,]+) of 20,000 requests drawn", html)[1]
    assert len(html) < 1_000_000


def test_a_run_in_which_everything_failed_still_gives_a_page(files, failure):
    files.write_requests(
        failure(0, phase="single/short", users=1),
        *(failure(1000 + n, phase="sweep/short/2", message="<script>alert(1)</script>") for n in range(30)),
    )

    html = to_html(build(files.prefix))

    assert "short at 2 users: none of 30 requests succeeded." in html
    assert figures(html) == ["timeline"]
    assert "<code>server_error</code>" in html
    assert "no healthy prefill or decode worker took the request" in html
    assert "alert(1)</script>" not in html


def test_a_run_without_a_sweep_has_no_curves(files, success):
    files.write_requests(*(success(100 * n, phase="concurrency/short/2") for n in range(40)))

    html = to_html(build(files.prefix))

    assert "short at 2 users: TTFT mean 100.0 ms" in html
    assert figures(html) == ["timeline", "distribution_ttft", "distribution_tpot", "distribution_itl_p99"]


def test_a_tier_named_like_markup_stays_text(files, success):
    files.write_requests(*(success(100 * n, tier='</script><b x="', users=8) for n in range(40)))

    html = to_html(build(files.prefix))

    assert "<b x=" not in html
    assert html.count("</script>") == html.count("<script")


def test_a_capacity_that_is_not_known_is_not_nought(tmp_path):
    late = write_run(tmp_path / "late", sweep("short", (64, 400)))
    frame = pd.read_csv(tmp_path / "late_requests.csv", dtype=str, keep_default_na=False)
    frame.assign(loop_lag_ms="200.0").to_csv(tmp_path / "late_requests.csv", index=False)
    over = write_run(tmp_path / "over", sweep("short", (400, 2400)))

    shown = [re.search(r'class="figure">([^<]*) <', to_html(build(prefix)))[1] for prefix in (late, over)]

    assert shown == ["n/a", "&lt; 400"]
