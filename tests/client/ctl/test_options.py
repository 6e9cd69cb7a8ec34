"""The common options."""

from importlib.metadata import version

import pytest
import typer

from namesrv_client.ctl.options import Given, Options, duration, resolve
from tests.support.ctl import nobody, run


def test_defaults() -> None:
    """This machine's server, asked once."""
    assert Options(
        addresses=("127.0.0.1:9876",),
        output="table",
        watch_seconds=None,
        timeout_seconds=3.0,
        color=True,
        yes=False,
    ) == resolve(Given(), Given(), {})


def test_what_stands_after_the_command_wins() -> None:
    """Servers add up; a flag counts at either place."""
    before = Given(("a:1",), "json", "1s", "2s", no_color=True, yes=False)
    after = Given(("b:2",), "yaml", "3s", "4s", no_color=False, yes=True)

    assert Options(("a:1", "b:2"), "yaml", 3.0, 4.0, color=False, yes=True) == resolve(before, after, {})
    assert Options(("a:1",), "json", 1.0, 2.0, color=False, yes=False) == resolve(before, Given(), {})


def test_servers_come_from_the_environment_if_not_named() -> None:
    """From NAMESRV_ADDR, as for RocketMQ's own tools; an empty one is none."""
    environ = {"NAMESRV_ADDR": "a:1;b:2"}

    assert ("a:1", "b:2") == resolve(Given(), Given(), environ).addresses
    assert ("c:3",) == resolve(Given(("c:3",)), Given(), environ).addresses
    assert ("127.0.0.1:9876",) == resolve(Given(), Given(), {"NAMESRV_ADDR": ""}).addresses


def test_the_usual_port_is_added() -> None:
    """Behind a name, an IPv4 address and a bracketed IPv6 address."""
    given = Given(("localhost", "10.0.0.1, [::1] ;a:1"))

    assert ("localhost:9876", "10.0.0.1:9876", "[::1]:9876", "a:1") == resolve(given, Given(), {}).addresses


def test_version() -> None:
    """Of the distribution that it came with."""
    assert (0, f"namesrvctl {version('namesrv')}\n") == (run("--version").code, run("--version").out)


def test_several_servers_may_stand_in_one_option() -> None:
    """As in mqadmin's -n; each counts once."""
    assert ("a:1", "[::1]:2", "c:3") == resolve(Given(("a:1;[::1]:2", "c:3,a:1")), Given(), {}).addresses


@pytest.mark.parametrize(
    ("given", "environ", "where", "message"),
    [
        (Given(("::1",)), {}, "--server", "address '::1' is not host:port or [ipv6]:port"),
        (Given((";",)), {}, "--server", "no addresses"),
        (Given(), {"NAMESRV_ADDR": "a:0"}, "NAMESRV_ADDR", "address 'a:0' is not host:port or [ipv6]:port"),
        (Given(watch="0"), {}, "--watch", "'0' is outside 0.1 s to 86400 s"),
        (Given(timeout="2d"), {}, "--timeout", "not a valid duration: '2d' (for example 500ms, 2s, 1m)"),
    ],
)
def test_what_is_wrong_is_named(given: Given, environ: dict[str, str], where: str, message: str) -> None:
    """With the option, or the variable, and the value."""
    with pytest.raises(typer.BadParameter) as raised:
        resolve(given, Given(), environ)

    assert (where, message) == (raised.value.param_hint, str(raised.value))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2s", 2.0), ("500ms", 0.5), ("1m", 60.0), ("2", 2.0), ("0.5", 0.5), (".5s", 0.5), (" 1h ", 3600.0)],
)
def test_times(text: str, seconds: float) -> None:
    """With a unit, or in seconds."""
    assert seconds == duration(text, "--timeout")


@pytest.mark.parametrize("text", ["", "s", "-1", "1e3", "1 s s", "nan", "inf", "٣", "0", "25h"])
def test_what_is_no_time(text: str) -> None:
    """Neither are times without end."""
    with pytest.raises(typer.BadParameter):
        duration(text, "--timeout")


def test_options_may_stand_before_and_after_the_command() -> None:
    """Both say the same."""
    with nobody() as absent:
        before = run("-s", absent, "--output", "json", "--timeout", "1s", "--no-color", "status")
        after = run("status", "--server", absent, "-o", "json", "--timeout", "1s", "--no-color")

    assert before == after
    assert (2, absent) == (before.code, before.json["servers"][0]["server"])
