"""The tab "PD" of Locust's web UI, the page `pd/` behind it, and the downloads.

Routes stand beside Locust's own: under its base path, behind its login. Nothing here runs before somebody
looks, except one `Live.take` a finished request.
"""

from __future__ import annotations

import time
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import gevent
import orjson
from flask import Blueprint, Response, request
from gevent.lock import BoundedSemaphore

from pd_locust.language import Language, Speech
from pd_locust.load.downloads import Downloads
from pd_locust.load.live import Live, client_to_json
from pd_locust.load.prometheus import CONTENT_TYPE, exposition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pd_locust.load.recorder import RecordsFile
    from pd_locust.load.settings import Settings
    from pd_locust.plateau import Plateau
    from pd_locust.warnings import Doubt

TAB = "pd"
_FRESH_S = 1.0
_MOST_DOUBTS = 12
_SCRIPT = b'<script defer src="./pd/panel.js"></script></body>'
_FILES = (
    ("./pd/", "PD: live page"),
    ("./pd/requests.csv", "PD: every request so far (CSV)"),
    ("./pd/report.html", "PD: report so far (HTML)"),
    ("./pd/tables.zip", "PD: tables so far (CSV, Markdown)"),
    ("./pd/metrics", "PD: what is shown, for Prometheus"),
)


class WebTab:
    """Shows one run at a time; all viewers get the same answer within a second."""

    def __init__(
        self,
        environment: Any,
        settings: Settings,
        records: RecordsFile,
        doubts: Callable[[], Sequence[Doubt]],
    ) -> None:
        self.live = Live(settings.slo)
        self._order = [tier.name for tier in settings.tiers]
        self._environment = environment
        self._standing_doubts = doubts
        self._in_flight: dict[str, dict[str, int]] = {}
        self._shown: dict[str, Any] = {}
        self._shown_until_s = 0.0
        self._one_at_a_time = BoundedSemaphore()
        self._register(Downloads(records))
        events = environment.events
        events.test_start.add_listener(self._on_test_start)
        events.test_stop.add_listener(self._on_test_stop)
        events.worker_report.add_listener(self._on_worker_report)

    def _register(self, downloads: Downloads) -> None:
        web_ui = self._environment.web_ui
        blueprint = Blueprint("pd_locust", __name__, url_prefix=f"{self._base_path}/pd")
        views = {
            "/": _page,
            "/panel.js": _script,
            "/live": self._answer,
            "/metrics": self._metrics,
            "/requests.csv": downloads.requests,
            "/report.html": downloads.html,
            "/tables.zip": downloads.tables,
        }
        for rule, view in views.items():
            endpoint = rule.strip("/").replace(".", "_") or "page"
            blueprint.add_url_rule(rule, endpoint, web_ui.auth_required_if_enabled(view))
        web_ui.app.register_blueprint(blueprint)
        web_ui.app.after_request(self._extend)
        added: dict[str, list[dict[str, Any]]] = {
            "extended_tabs": [{"title": "PD", "key": TAB}],
            "extended_tables": [
                {"key": TAB, "structure": [{"key": key, "title": title} for key, title in COLUMNS.items()]}
            ],
            "extended_csv_files": [{"href": href, "title": title} for href, title in _FILES],
        }
        for name, more in added.items():
            web_ui.template_args[name] = [*web_ui.template_args.get(name, []), *more]

    @property
    def _base_path(self) -> str:
        return (self._environment.parsed_options.web_base_path or "").rstrip("/")

    def _on_test_start(self, **_kwargs: Any) -> None:
        self._in_flight.clear()
        self._shown_until_s = 0.0
        self.live.begin(time.monotonic())

    def _on_test_stop(self, **_kwargs: Any) -> None:
        self.live.end(time.monotonic())

    def _on_worker_report(self, client_id: str, data: dict[str, Any]) -> None:
        self._in_flight[client_id] = data.get("pd_in_flight", {})

    def _extend(self, response: Response) -> Response:
        """Add our script to Locust's page and our rows to its statistics."""
        if response.status_code == 200 and request.endpoint == "locust.index":
            response.set_data(response.get_data().replace(b"</body>", _SCRIPT))
        elif response.status_code == 200 and request.endpoint == "locust.request_stats":
            # Locust hands out the same response object for two seconds: ours must replace ours.
            report = orjson.loads(response.get_data())
            others = [one for one in report.get("extended_stats", []) if one["key"] != TAB]
            report["extended_stats"] = [*others, {"key": TAB, "data": self._rows()}]
            response.set_data(orjson.dumps(report))
        return response

    def _rows(self) -> list[dict[str, Any]]:
        return [row_of(tier) for tier in self._now()["tiers"]]

    def _answer(self) -> Response:
        shown = self._now()
        language = _language()
        if language is not Language.EN:
            shown = _said(shown, Speech.of(language))
        return Response(
            orjson.dumps(shown), mimetype="application/json", headers={"Cache-Control": "no-store"}
        )

    def _metrics(self) -> Response:
        return Response(exposition(self._now()), content_type=CONTENT_TYPE)

    def _now(self) -> dict[str, Any]:
        """What is shown, made at most once a second however many are looking."""
        with self._one_at_a_time:
            now_s = time.monotonic()
            if now_s >= self._shown_until_s:
                self._shown = self._made(now_s)
                self._shown_until_s = now_s + _FRESH_S
            return self._shown

    def _made(self, now_s: float) -> dict[str, Any]:
        in_flight = self._count_in_flight()
        tiers: list[dict[str, Any]] = []
        doubts: list[Doubt] = list(self._standing_doubts())
        windows: list[Plateau | None] = []
        for kept in list(self.live.tiers.values()):
            tier, doubtful, window = self.live.show(kept, now_s, _pause)
            tiers.append(tier | {"in_flight": in_flight.get(kept.tier, 0)})
            doubts += doubtful
            windows.append(window)
            _pause()
        runner = self._environment.runner
        return {
            "state": runner.state,
            "elapsed_s": self.live.elapsed_s(now_s),
            "users": runner.user_count,
            "in_flight": sum(in_flight.values()),
            "limit": self._limit(),
            "client": client_to_json(windows),
            "tiers": sorted(tiers, key=self._place),
            "doubts": [doubt.to_json() for doubt in _once(doubts)],
        }

    def _place(self, tier: dict[str, Any]) -> int:
        """As the tiers were chosen; the mix comes last."""
        name = tier["tier"]
        return self._order.index(name) if name in self._order else len(self._order)

    def _count_in_flight(self) -> dict[str, int]:
        """Requests in flight by tier: here, or as every connected worker has said in the last second or so."""
        runner = self._environment.runner
        clients = getattr(runner, "clients", None)
        if clients is None:
            counts = [self._environment.pd_session.in_flight_by_tier()]
        else:
            counts = [count for worker, count in self._in_flight.items() if worker in clients]
        tiers = {tier for count in counts for tier in count}
        return {tier: sum(count.get(tier, 0) for count in counts) for tier in tiers}

    def _limit(self) -> dict[str, Any]:
        primary = self.live.slo.primary
        return {
            "text": str(self.live.slo),
            "metric": primary.request.metric if primary else None,
            "statistic": primary.statistic if primary else None,
            "limit_ms": primary.request.limit_ms if primary else None,
        }


def _pause() -> None:
    """Streams that wait for the loop go first."""
    gevent.sleep(0)


def _once(doubts: Iterable[Doubt]) -> list[Doubt]:
    """Each doubt about one place once, as it was said first."""
    found: dict[tuple[str, str], Doubt] = {}
    for doubt in doubts:
        found.setdefault((doubt.code, doubt.where), doubt)
    return list(found.values())[:_MOST_DOUBTS]


def _language() -> Language:
    """`?lang=`, else the browser's."""
    wanted = request.args.get("lang") or request.accept_languages.best_match(["en", "zh"]) or ""
    return Language.ZH if wanted.startswith("zh") else Language.EN


def _said(shown: dict[str, Any], say: Speech) -> dict[str, Any]:
    doubts = [
        doubt | {key: say(doubt[key]) for key in ("where", "seen", "cause", "remedy")}
        for doubt in shown["doubts"]
    ]
    tiers = [
        tier | {"search": tier["search"] and tier["search"] | {"why": say(tier["search"]["why"])}}
        for tier in shown["tiers"]
    ]
    return shown | {"doubts": doubts, "tiers": tiers}


def _page() -> Response:
    return Response(_panel("page.html"), mimetype="text/html")


def _script() -> Response:
    """One file with its style sheet inside: the panel lives in a shadow root, where no page's style reaches."""
    style = orjson.dumps(_panel("panel.css")).decode()
    script = _panel("panel.js").replace('"PANEL_STYLE"', style)
    return Response(script, mimetype="text/javascript", headers={"Cache-Control": "no-cache"})


def _panel(name: str) -> str:
    return files("pd_locust.load").joinpath("panel", name).read_text(encoding="utf-8")


COLUMNS = {
    "name": "Tier",
    "users": "Users",
    "finished": "# Finished",
    "failed": "# Failed",
    **{
        f"{metric}_{statistic}": f"{metric.upper()} {statistic} (ms)"
        for metric in ("ttft", "tpot")
        for statistic in ("mean", "p50", "p95", "p99")
    },
    "output_tokens_per_s": "tok/s",
    "in_flight": "In flight",
    "goodput_per_s": "Goodput/s",
}


def row_of(tier: dict[str, Any]) -> dict[str, Any]:
    """One line of the table; a missing number reads n/a, where Locust would print nothing."""
    level, window = tier["level"] or {}, tier["window"] or {}
    row = {
        "name": tier["tier"],
        "users": level.get("users"),
        **{key: tier[key] for key in ("finished", "failed")},
    }
    for metric in ("ttft", "tpot"):
        for statistic in ("mean", "p50", "p95", "p99"):
            value = level.get(f"{metric}_ms", {}).get(statistic)
            row[f"{metric}_{statistic}"] = None if value is None else round(value, 3)
    for key in ("output_tokens_per_s", "goodput_per_s"):
        value = window.get(key)
        row[key] = None if value is None else round(value, 1)
    return {
        key: "n/a" if value is None else value
        for key, value in (row | {"in_flight": tier["in_flight"]}).items()
    }
