"""The pages on which an operator acknowledges a problem, or dismisses a broker that has left."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, cast
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from namesrv_client.health import Problem, subject_of
from namesrv_console.access.guard import about_of, for_operators, form_of
from namesrv_console.access.login import Render
from namesrv_console.access.trail import cut
from namesrv_console.access.users import User
from namesrv_console.acknowledged import Acknowledgement, digest_of
from namesrv_console.console import Console
from namesrv_console.state import BrokerKey
from namesrv_remoting.health import LEVELS, Kind
from namesrv_runtime.log import event
from namesrv_spark_jobs.history.spans import written

logger: Final = logging.getLogger(__name__)

# Hours for which a problem can be acknowledged; 0 ends an acknowledgement.
HOURS: Final = (1, 8, 24, 168)
_MAX_WHY: Final = 500


class AttendingPages:
    """The pages of acknowledgement and dismissal, for operators."""

    def __init__(self, console: Console, render: Render, address_of: Callable[[Request], str]) -> None:
        self._console = console
        self._render = render
        self._address_of = address_of

    def routes(self) -> list[Route]:
        """The routes of these pages."""
        return [
            Route("/acknowledge", for_operators(self._show_problem), methods=["GET"]),
            Route("/acknowledge", self._acknowledge, methods=["POST"]),
            Route("/dismiss", for_operators(self._show_gone), methods=["GET"]),
            Route("/dismiss", self._dismiss, methods=["POST"]),
        ]

    async def _show_problem(self, request: Request) -> Response:
        problem = self._problem(request.query_params)
        if problem is None:
            return self._render(request, "attend", {"problem": None, "gone": None, "error": None}, 404)
        return self._page(request, problem)

    async def _acknowledge(self, request: Request) -> Response:
        form = form_of(request)
        problem = self._problem(about_of(request))
        if problem is None:
            return RedirectResponse("/", 303)
        hours, why = form.get("hours", ""), form.get("why", "").strip()
        if hours not in {"0", *map(str, HOURS)} or len(why) > _MAX_WHY or not (why or hours == "0"):
            return self._page(request, problem, status=400, error="acknowledge_incomplete")
        wall, health = self._console.clock.wall(), self._console.health
        before = health.report(self._console.observed.cluster).acknowledged.get(problem.key)
        until = wall + int(hours) * 3600
        extent = self._extent_of(problem)
        if hours != "0" and form.get("extent") != digest_of(sorted(extent)):
            return self._page(request, problem, status=409, error="acknowledge_changed")
        after = None if hours == "0" else Acknowledgement(*problem.key, request.user.name, why, until, extent)
        try:
            await health.acknowledge(problem, after)
        except OSError as error:
            event(logger, logging.ERROR, "acknowledgement_not_written", error=str(error))
            return self._page(request, problem, status=500, error="acknowledge_not_written")
        key = "/".join(problem.key)
        change = {"what": "acknowledgement", "key": key, "before": _text(before), "after": _text(after)}
        self._record(request, "ACKNOWLEDGE", change)
        return RedirectResponse("/", 303)

    async def _show_gone(self, request: Request) -> Response:
        gone = self._gone(request.query_params)
        values = {"problem": None, "gone": gone, "error": None}
        if gone is None:
            return self._render(request, "attend", values, 404)
        return self._render(request, "attend", values | {"about": urlencode({"broker": subject_of(gone)})}, 200)

    async def _dismiss(self, request: Request) -> Response:
        key = self._gone(about_of(request))
        if key is not None:
            self._console.health.dismiss(key)
            change = {"what": "broker_that_left", "key": subject_of(key), "before": "listed", "after": None}
            self._record(request, "DISMISS", change)
        return RedirectResponse("/", 303)

    def _page(self, request: Request, problem: Problem, *, status: int = 200, error: str | None = None) -> Response:
        values: dict[str, Any] = {"problem": problem, "gone": None, "hours": HOURS, "error": error}
        # The page shows the extent, and an acknowledgement must not cover more than its user has seen.
        extent = self._extent_of(problem)
        values["about"] = urlencode({"kind": problem.kind, "subject": problem.subject})
        values |= {"extent": digest_of(sorted(extent)), "why": form_of(request).get("why") if error else None}
        return self._render(request, "attend", values, status)

    def _extent_of(self, problem: Problem) -> frozenset[str]:
        return self._console.health.extent_of(problem, self._console.observed.cluster)

    def _problem(self, given: Mapping[str, str]) -> Problem | None:
        """The current problem that a query or a form names."""
        kind = given.get("kind", "")
        if kind not in LEVELS:
            return None
        key = cast("Kind", kind), given.get("subject", "")
        found = self._console.health.report(self._console.observed.cluster).problems
        return next((one for one in found if one.key == key), None)

    def _gone(self, given: Mapping[str, str]) -> BrokerKey | None:
        """The broker that has left and that a query or a form names."""
        found = self._console.health.report(self._console.observed.cluster).gone
        name = given.get("broker", "")
        return next((BrokerKey(*one.key) for one in found if subject_of(one.key) == name), None)

    def _record(self, request: Request, name: str, change: Mapping[str, str | None]) -> None:
        """Write a change to the log and to the audit trail."""
        user: User = request.user
        shown = {key: value and cut(value) for key, value in change.items()}
        event(logger, logging.WARNING, "operator_attended", user=user.name, change=shown)
        if (trail := self._console.trail) is not None:
            trail.changed(user, self._address_of(request), name, "", [shown])


def _text(one: Acknowledgement | None) -> str | None:
    return None if one is None else f"until {written(round(one.until) * 1000)}Z by {one.account}: {one.why}"
