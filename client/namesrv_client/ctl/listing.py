"""Reports made of the answers of several servers to one question."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from namesrv_client.ctl import exit_codes
from namesrv_client.ctl.output import Report
from namesrv_client.ctl.servers import Answers
from namesrv_client.ctl.tables import table

T = TypeVar("T")

Row = Sequence[object]


def listing(  # noqa: PLR0913 - by keyword
    answers: Answers[T],
    name: str,
    *,
    document: Callable[[T], Any],
    columns: Sequence[str],
    rows: Callable[[T], Iterable[Row]],
    absences: Sequence[str] = (),
) -> Report:
    """A list per server; each line of `absences` says what was asked for and is not there."""
    several = len(answers.servers) > 1
    found = [((server, *row) if several else row) for server, value in answers.given.items() for row in rows(value)]
    nothing = [f"no {name}"] if answers.given and not found and not absences else []
    return Report(
        {"servers": answers.documents(lambda value: {name: document(value)})},
        table(("server", *columns) if several else columns, found),
        max(answers.code(), exit_codes.NO if absences else exit_codes.OK),
        [*answers.problems(), *absences, *nothing],
    )


def absences_in(answers: Answers[T], missing: Callable[[T], Iterable[str]]) -> list[str]:
    """A line for each thing that a server positively does not have."""
    return [f"{server}: no {what}" for server, value in answers.given.items() for what in missing(value)]


def done(
    answers: Answers[T],
    what: Mapping[str, Any],
    *,
    members: Callable[[T], Mapping[str, Any]] = lambda _: {},
    absences: Sequence[str] = (),
) -> Report:
    """What a change came to on each server; one that was not reached is not changed, and that is a no."""
    results = {server: members(value) for server, value in answers.given.items()}
    heads = next((tuple(result) for result in results.values()), ())
    return Report(
        {**what, "servers": answers.documents(members)},
        table(("server", "result", *heads), [(server, "done", *result.values()) for server, result in results.items()]),
        max(answers.code(needs_all=True), exit_codes.NO if absences else exit_codes.OK),
        [*answers.problems(), *absences],
    )
