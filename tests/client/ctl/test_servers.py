"""Answers of several servers, and of those that give none."""

import pytest

from namesrv_client.ctl.servers import Answers, problem, reason
from namesrv_remoting.errors import ConnectError, NoPermissionError, RequestTimeoutError


@pytest.mark.parametrize(
    ("given", "refused", "unreachable", "code", "code_if_all"),
    [
        ("ab", "", "", 0, 0),
        ("a", "", "b", 0, 1),
        ("a", "b", "", 1, 1),
        ("", "ab", "", 1, 1),
        ("", "a", "b", 1, 1),
        ("", "", "ab", 2, 2),
    ],
)
def test_exit_code_of_answers(given: str, refused: str, unreachable: str, code: int, code_if_all: int) -> None:
    """A refusal is an answer, and a no; one that is missing counts where all are needed; nobody at all is 2."""
    found = Answers(
        ("a", "b"), dict.fromkeys(given, 1), dict.fromkeys(refused, "no"), dict.fromkeys(unreachable, "down")
    )

    assert (code, code_if_all) == (found.code(), found.code(needs_all=True))


def test_answers_keep_the_order_of_the_servers() -> None:
    """Also where one has none."""
    found = Answers(("b:1", "c:1", "a:1"), {"a:1": 5}, {"b:1": "no"}, {"c:1": "no connection to c:1: refused"})

    assert ["b:1: no", "no connection to c:1: refused"] == found.problems()
    assert [
        {"server": "b:1", "error": "no", "answered": True},
        {"server": "c:1", "error": "no connection to c:1: refused", "answered": False},
        {"server": "a:1", "x": 5},
    ] == found.documents(lambda value: {"x": value})


def test_reasons_are_told_in_one_line() -> None:
    """With the code of a refusal; a line that names the server names it once."""
    assert "refused with code 16: not here" == reason(NoPermissionError("not here"))
    assert "refused with code 16: no reason given" == reason(NoPermissionError(None))
    assert "gone" == reason(ConnectError("gone"))
    assert "RequestTimeoutError" == reason(RequestTimeoutError())
    assert ("a:1: gone", "no a:1") == (problem("a:1", "gone"), problem("a:1", "no a:1"))
