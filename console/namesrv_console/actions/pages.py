"""The pages of the actions: the list, the preview of one on each server, and its results."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from namesrv_client.ctl.nameserver import NameServer
from namesrv_client.ctl.servers import Responses, reason, responses_of
from namesrv_console.access.guard import about_of, for_operators, form_of
from namesrv_console.access.login import Render
from namesrv_console.access.trail import cut
from namesrv_console.access.users import User
from namesrv_console.actions.kinds import ACTIONS, Action, Change, Fields, command
from namesrv_console.console import MAX_CHARACTERS, Console, Content, Page, Visit
from namesrv_remoting.errors import ConnectionClosedError, RemotingError, RequestTimeoutError, ResponseError
from namesrv_runtime.log import event, printable

logger: Final = logging.getLogger(__name__)

T = TypeVar("T")


async def _show(visit: Visit) -> Content:
    """The list of all actions; the query may fill in their fields."""
    return {"actions": list(ACTIONS.values()), "given": dict(visit.query)}


PAGE: Final = Page(
    "actions",
    "/actions",
    "actions.title",
    _show,
    fields=tuple({name: None for action in ACTIONS.values() for name in action.fields}),
    max_characters=MAX_CHARACTERS,
    group="changes",
    key="x",
)


# The changes of an action on a server; None if the server denied reading them beforehand.
Changes = list[Change] | None


class UnansweredError(RemotingError):
    """A server has not answered an action; it may have carried it out, or may still do so."""


class ActionPages:
    """The pages of each action, for operators."""

    def __init__(self, console: Console, render: Render, address_of: Callable[[Request], str]) -> None:
        self._console = console
        self._servers = console.servers
        self._render = render
        # Returns the client's address of a request.
        self._address_of = address_of

    def routes(self) -> list[Route]:
        """The routes of these pages, in addition to those of the other pages."""
        return [
            Route(f"{PAGE.path}/{name}", handler, methods=[method])
            for name, action in ACTIONS.items()
            for method, handler in (("GET", self._previewing(action)), ("POST", self._performing(action)))
        ]

    def _previewing(self, action: Action) -> Callable[[Request], Awaitable[Response]]:
        async def preview(request: Request) -> Response:
            return await self._preview(request, action, request.query_params)

        return for_operators(preview)

    def _performing(self, action: Action) -> Callable[[Request], Awaitable[Response]]:
        async def perform(request: Request) -> Response:
            # The guard has checked that an operator sent the form, and that it belongs to this session.
            given, typed = about_of(request), form_of(request).get("confirm", "")
            fields = action.complete(given)
            if fields is None or _is_too_long(fields):
                return await self._preview(request, action, given, status=400)
            name = fields[action.confirmed]
            # A name with control characters cannot be typed; its printable form counts, too.
            if typed not in {name, printable(name)}:
                return await self._preview(request, action, given, status=400, error="not_confirmed")
            outcomes = await responses_of(
                self._servers.values(), lambda server: _perform(action, server, fields, request.user.name)
            )
            self._write_down(request, action, fields, outcomes)
            self._console.acted()
            return self._render(request, "action_done", self._values(action, fields) | {"outcomes": outcomes}, 200)

        return perform

    async def _preview(
        self, request: Request, action: Action, given: Mapping[str, str], *, status: int = 200, error: str | None = None
    ) -> Response:
        fields = action.complete(given)
        if fields is not None and _is_too_long(fields):
            fields, status, error = None, 400, "too_long"
        shown = {name: given.get(name, "")[:MAX_CHARACTERS] for name in action.fields} if fields is None else fields
        outcomes = None
        if fields is not None:
            wanted = fields
            outcomes = await responses_of(self._servers.values(), lambda server: action.changes(server, wanted))
        values = self._values(action, shown) | {"outcomes": outcomes, "error": error}
        return self._render(request, "action", values, status)

    def _values(self, action: Action, fields: Fields) -> dict[str, Any]:
        return {
            "action": action,
            "fields": fields,
            "about": urlencode(fields),
            "command": self._command(action, fields),
            "reason": reason,
            "is_error": _is_error,
            "is_unanswered": _is_unanswered,
        }

    def _command(self, action: Action, fields: Fields) -> str:
        options = ["--tls"] if self._console.settings.tls.tls else []
        return command(action, self._servers, fields, options=options)

    def _write_down(self, request: Request, action: Action, fields: Fields, outcomes: Responses[Changes]) -> None:
        user: User = request.user
        line = self._command(action, fields)
        failed = outcomes.failures()
        changed = {server: changes for server, changes in outcomes.given.items() if changes != []}
        event(logger, logging.WARNING, "operator_acted", user=user.name, command=line, done=[*changed], failed=failed)
        if (trail := self._console.trail) is None:
            return
        address = self._address_of(request)
        errors = _errors(outcomes)
        if not changed and not any(_is_unanswered(error) for _, error in errors):
            if failed:
                trail.refused(user.name, address, action.request.name, "failed", "; ".join(failed))
            return
        audited: list[Mapping[str, Any]] = [
            {"what": action.what, **_audited_fields(action, fields), "server": server, "before": before, "after": after}
            for server, changes in changed.items()
            for before, after in _audited_changes(changes)
        ]
        audited += [{"what": "not_done", "server": server, "error": _audited_error(error)} for server, error in errors]
        trail.changed(user, address, action.request.name, line, audited)


async def _perform(action: Action, server: NameServer, fields: Fields, operator: str) -> Changes:
    changes: Changes
    try:
        changes = await action.changes(server, fields)
    except ResponseError:
        # The server denies reading the value, and may still accept the change.
        changes = None
    try:
        await action.perform(server, fields, operator)
    except (ConnectionClosedError, RequestTimeoutError) as error:
        raise UnansweredError(reason(error)) from error
    return changes


# Field names in an audit line, as in a NameServer's audit trail.
_AUDITED: Final = {"broker": "broker_name"}


def _audited_fields(action: Action, fields: Fields) -> dict[str, str]:
    names = {**_AUDITED, "key": "setting"} if action.what == "setting" else _AUDITED
    return {names.get(name, name): cut(value) for name, value in fields.items() if name != "value"}


def _audited_changes(changes: Changes) -> list[tuple[str | None, str | None]]:
    if changes is None:
        return [(None, None)]
    return [(it.before and cut(it.before), it.after and cut(it.after)) for it in changes]


def _errors(outcomes: Responses[T]) -> list[tuple[str, RemotingError]]:
    return [(server, found) for server, found in outcomes.outcomes.items() if isinstance(found, RemotingError)]


def _is_error(outcome: object) -> bool:
    return isinstance(outcome, RemotingError)


def _is_unanswered(outcome: object) -> bool:
    return isinstance(outcome, UnansweredError)


def _audited_error(error: RemotingError) -> str:
    why = reason(error)
    return f"{why}; the server may have done it all the same" if _is_unanswered(error) else why


def _is_too_long(fields: Fields) -> bool:
    return any(len(value) > MAX_CHARACTERS for value in fields.values())
