"""Common options of namesrvctl, and exit codes for the responses of several servers."""

import pytest
import typer

from namesrv_client.ctl.options import duration, options_of
from namesrv_client.ctl.servers import Responses, failure_line
from namesrv_remoting.errors import ConnectError, NoPermissionError, RequestTimeoutError
from tests.support.ctl import refusing_address, run


@pytest.fixture(autouse=True)
def _no_servers_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")


@pytest.mark.parametrize(
    ("servers", "variable", "addresses"),
    [
        (None, "a:1;b:2", ("a:1", "b:2")),
        (["c:3"], "a:1", ("c:3",)),
        (None, "", ("127.0.0.1:9876",)),
        (["a:1;[::1]:2", "c:3,a:1"], "", ("a:1", "[::1]:2", "c:3")),
        (["localhost", "10.0.0.1, [::1] ;a:1"], "", ("localhost:9876", "10.0.0.1:9876", "[::1]:9876", "a:1")),
    ],
)
def test_servers(
    servers: list[str] | None, variable: str, addresses: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """--server takes lists, removes duplicates and adds the default port; NAMESRV_ADDR is the fallback."""
    monkeypatch.setenv("NAMESRV_ADDR", variable)

    assert options_of(server=servers).addresses == addresses


@pytest.mark.parametrize(
    ("given", "where", "message"),
    [
        ({}, "NAMESRV_ADDR", "address 'a:0' is not host:port or [ipv6]:port"),
        ({"server": ["::1"]}, "--server", "an IPv6 address needs brackets: [::1], or with a port [::1]:9876"),
        ({"server": [";"]}, "--server", "no addresses"),
        ({"server": [""]}, "--server", "no addresses"),
        ({"watch": "0"}, "--watch", "'0' is outside 0.1 s to 86400 s"),
        ({"timeout": "2d"}, "--timeout", "not a valid duration: '2d' (for example 500ms, 2s, 1m)"),
    ],
)
def test_wrong_value_is_reported_with_its_option(
    given: dict[str, object], where: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the option or variable and its value."""
    monkeypatch.setenv("NAMESRV_ADDR", "a:0" if where == "NAMESRV_ADDR" else "a:1")
    with pytest.raises(typer.BadParameter) as raised:
        options_of(**given)  # type: ignore[arg-type]  # each is one of them

    assert (raised.value.param_hint, str(raised.value)) == (where, message)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2s", 2.0), ("500ms", 0.5), ("1m", 60.0), ("2", 2.0), ("0.5", 0.5), (".5s", 0.5), (" 1h ", 3600.0)],
)
def test_duration(text: str, seconds: float) -> None:
    """A duration has a unit or is in seconds."""
    assert duration(text, "--timeout") == seconds


@pytest.mark.parametrize("text", ["", "s", "-1", "1e3", "1 s s", "nan", "inf", "٣", "0", "25h"])
def test_invalid_duration(text: str) -> None:
    """Zero, negative, infinite and malformed durations are refused."""
    with pytest.raises(typer.BadParameter):
        duration(text, "--timeout")


def test_options_may_stand_before_and_after_the_command() -> None:
    """Servers of both places add up, flags count at either place, and other options after the command win."""
    with refusing_address() as absent, refusing_address() as other:
        before = run("-s", absent, "--output", "json", "--timeout", "1s", "--no-color", "status")
        after = run("-o", "yaml", "status", "--server", absent, "-o", "json", "--timeout", "1s", "--no-color")
        both = run("-y", "-s", absent, "-o", "json", "kv", "delete", "n", "k", "-s", other)

    assert before == after
    assert (before.code, before.json["servers"][0]["server"]) == (2, absent)
    assert (both.code, [answer["server"] for answer in both.json["servers"]]) == (2, [absent, other])


@pytest.mark.parametrize(
    ("given", "refused", "unreachable", "code", "code_if_all"),
    [
        *(("ab", "", "", 0, 0), ("a", "", "b", 0, 1), ("a", "b", "", 1, 1)),
        *(("", "ab", "", 1, 1), ("", "a", "b", 1, 1), ("", "", "ab", 2, 2)),
    ],
)
def test_exit_code_of_answers(given: str, refused: str, unreachable: str, code: int, code_if_all: int) -> None:
    """A refusal exits with 1, a missing response counts only where all are needed, and none at all exits with 2."""
    found = Responses(
        {
            **dict.fromkeys(given, 1),
            **dict.fromkeys(refused, NoPermissionError("no")),
            **dict.fromkeys(unreachable, ConnectError("down")),
        }
    )

    assert (found.code(), found.code(needs_all=True)) == (code, code_if_all)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (NoPermissionError("not here"), "a:1: refused with code 16: not here"),
        (NoPermissionError(None), "a:1: refused with code 16: no reason given"),
        (ConnectError("no connection to a:1"), "no connection to a:1"),
        (RequestTimeoutError(), "a:1: RequestTimeoutError"),
    ],
)
def test_failure_is_one_line(error: NoPermissionError | ConnectError, line: str) -> None:
    """The line contains the code of a refusal and names the server once."""
    assert failure_line("a:1", error) == line
