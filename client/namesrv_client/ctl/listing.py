"""How are the answers of several servers to one question put together?"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from namesrv_client.ctl import exit_codes
from namesrv_client.ctl.output import Report, table
from namesrv_client.ctl.servers import Answers

T = TypeVar("T")


def listing(
    answers: Answers[T],
    name: str,
    *,
    document: Callable[[T], Any],
    columns: Sequence[str],
    rows: Callable[[T], Iterable[Sequence[object]]],
    is_filtered: bool = False,
) -> Report:
    """A list per server. Having asked for something (`is_filtered`), an empty one is a no."""
    several = len(answers.servers) > 1
    all_rows = [(server, row) for server, found in answers.given.items() for row in rows(found)]
    empty = [server for server in answers.given if all(server != one for one, _ in all_rows)]
    problems = answers.problems()
    if is_filtered:
        problems += [f"{server}: no {name} like that" for server in empty]
    elif answers.given and not all_rows:
        problems.append(f"no {name}")
    return Report(
        {"servers": answers.documents(lambda found: {name: document(found)})},
        table(
            ("server", *columns) if several else columns,
            [(server, *row) if several else row for server, row in all_rows],
        ),
        max(answers.code(), exit_codes.NO if is_filtered and empty else exit_codes.OK),
        problems,
    )
