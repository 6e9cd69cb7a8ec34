"""The command `top`: every broker's time until expiry on each server."""

import signal
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from namesrv_client.ctl.commands.brokers import key_of
from namesrv_client.ctl.commands.top import Seen, page
from namesrv_remoting.bodies.extensions import LiveBroker, ServerInfo, ServerProblem
from namesrv_remoting.errors import ConnectionClosedError, RequestTimeoutError
from tests.support.ctl import COMMAND, at, ctl, refusing_address, two_servers
from tests.support.daemon import Daemon
from tests.support.namesrv_peer import MASTER, native_registration
from tests.support.peer import Broker, Peer
from tests.support.scripted_server import ScriptedServer
from tests.support.terminal import Terminal

READY = ServerInfo("boot", ready=True, brokers=2, topics=5, connections=3, revision=7)


def broker(name: str, age: float) -> LiveBroker:
    """A live broker of this age."""
    return LiveBroker("c", name, 0, f"{name}:1", age_seconds=age, expires_in_seconds=120 - age, expiry_seconds=120)


def seen(server: str, *brokers: LiveBroker, info: ServerInfo | None = READY, at: float = 100.0) -> Seen:
    """A server's state received at this time."""
    info = info and msgspec.structs.replace(info, boot_id=server)
    return Seen(server, at, "ready" if info else "answers", info, {key_of(one): one for one in brokers})


def lines(*servers: Seen, now: float = 100.0, width: int = 200, height: int = 50) -> list[str]:
    """The page as a terminal of this size shows it."""
    console = Console(width=width, height=height, color_system=None)
    with console.capture() as captured:
        for part in page(servers, now, console):
            console.print(part, crop=False)
    return [line.rstrip() for line in captured.get().splitlines()]


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (seen("s"), "no brokers"),
        (Seen("s", 100.0), "brokers unknown"),
        (Seen("s", 100.0, error=ConnectionClosedError("gone")), "brokers unknown"),
    ],
)
def test_brokers_of_a_server_without_a_response_are_unknown(found: Seen, says: str) -> None:
    """An empty table means that there is no broker only if every server has answered."""
    assert lines(seen("other"), found)[-1] == says


def test_brokers_are_compared_with_the_worst_first() -> None:
    """Ages grow without a response; missing, overdue and late brokers come first, the rest by name."""
    one = seen("s1", broker("a", 1), broker("b", 70), broker("d", 121), broker("c", 14.9))
    two = seen("s2", broker("a", 2), broker("b", 1), broker("d", 5), at=99.0)

    heads, *rows = lines(one, two)[4:]

    assert heads.split() == ["CLUSTER", "BROKER", "ID", "ADDRESS", "S1", "S2"]
    assert [rows[0], rows[1].removesuffix(", expires in 1 m 54 s")] == [
        "c        c        0  c:1      ███████▏ seen 14.9 s ago, expires in 1 m 45 s  missing",
        "c        d        0  d:1      ········ seen 2 m 1 s ago, overdue             ███████▋ seen 6.0 s ago",
    ]
    assert [row.split()[1] for row in rows[2:]] == ["b", "a"]
    assert rows[3].endswith("seen 3.0 s ago, expires in 1 m 57 s")


@pytest.mark.parametrize(
    ("found", "now", "state", "cell"),
    [
        (seen("s", broker("a", 1)), 102.4, "ready", "seen 3.4 s ago"),
        (seen("s", broker("a", 1)), 102.5, "no answer for 2.5 s", "seen 3.5 s ago"),
        (seen("s"), 103.0, "no answer for 3.0 s", "unknown"),
        (Seen("s", 100.0), 102.5, "no answer for 2.5 s", "unknown"),
        (Seen("s", 100.0), 100.0, "connecting", "unknown"),
        (Seen("s", 100.0, error=RequestTimeoutError("3 s")), 105.0, "no answer for 5.0 s", "unknown"),
        (Seen("s", 100.0, error=ConnectionClosedError("gone")), 100.0, "unreachable", "unknown"),
        (seen("s", info=ServerInfo("boot")), 100.0, "ready", "not yet"),
        (seen("s", LiveBroker("c", "a", 0, "a:1"), info=None), 100.0, "answers", "present"),
        (Seen("s", 100.0, "ready", READY, refusal="denied"), 100.0, "ready", "unknown"),
    ],
)
def test_state_of_each_server_is_shown(found: Seen, now: float, state: str, cell: str) -> None:
    """Hanging, unreachable, not ready and Apache servers have states of their own."""
    shown = lines(found, seen("other", broker("a", 1), at=now), now=now)

    assert shown[1].split("  ")[1].strip() == state or f"  {state}" in shown[1]
    assert cell in shown[-1]


def test_problems_are_below_the_servers() -> None:
    """The page names the worst problems; a server that hangs is only in the table."""
    slave = LiveBroker("c", "a", 1, "a:1", age_seconds=1, expires_in_seconds=119, expiry_seconds=120, topics=4)
    alone = [f"c{number}" for number in range(6)]
    others = [LiveBroker(name, "a", 1, "a:1", age_seconds=1, expires_in_seconds=119) for name in alone]

    shown = lines(seen("s1", slave), Seen("s2", 90.0))
    many = lines(seen("s1", *others))
    full = msgspec.structs.replace(READY, problems=[ServerProblem("disk_failing", "audit trail")])
    own = lines(seen("s1", info=full), Seen("s2", 100.0, "ready", READY, refusal="denied"))

    what = "critical: c/a: no master is registered; producers cannot write to its 4 topics"
    assert shown[3] == f"s1: {what}; see `namesrvctl brokers --name a`"
    assert many[7] == "... 1 more problem"
    disk = "warning: s1: a file cannot be written: audit trail; after a restart it may lack what it could not write"
    denied = "unknown: s2: health of the broker groups is unknown: denied; a group may be without a master"
    assert {line.partition("; see `")[0] for line in own[3:5]} == {disk, denied}


@pytest.mark.parametrize(
    ("width", "height", "shown", "left_out"),
    [
        # Two servers and the heads leave room for this many lines.
        (200, 9, 3, "... 2 more brokers"),
        (200, 10, 5, None),
        # A broker is a block of six lines and an empty one.
        (55, 24, 2, "... 3 more brokers"),
        (55, 38, 5, None),
        # The servers alone are longer: the first broker stays.
        (55, 3, 1, "... 4 more brokers"),
    ],
)
def test_brokers_without_room_are_counted(width: int, height: int, shown: int, left_out: str | None) -> None:
    """Where a line is too long for the terminal, each broker takes several lines."""
    brokers = [broker(name, 1) for name in "abcde"]
    one, two = seen("s1", *brokers), seen("s2", *brokers)

    page = lines(one, two, width=width, height=height)

    assert sum(":1" in line for line in page) == shown
    assert (page[-1] if "more" in page[-1] else None) == left_out
    assert len(page) <= height or shown == 1


async def test_once_prints_one_page_for_scripts(tmp_path: Path) -> None:
    """`--once` exits with 1 when a server lacks a broker or is unreachable, or when no server has a wanted broker."""
    async with two_servers(tmp_path) as (first, _, one, two):
        await first.register(MASTER, native_registration("T"), spelling="native")

        alone = await ctl(*at(one), "top", "--once", "-o", "json")
        both = await ctl(*at(one, two), "top", "--once")
        with refusing_address() as absent:
            without = await ctl(*at(one, absent), "top", "--once")
        wanted = await ctl(*at(one), "top", "--once", "--name", "broker-a")
        unknown = await ctl(*at(one), "top", "--once", "--name", "broker-b")

    found = alone.json["servers"][0]["brokers"][0]
    summary = (found["broker_name"], found["verdict"], found["expiry_seconds"])
    assert (alone.code, summary) == (0, ("broker-a", "fine", 120.0))
    assert (both.code, both.err) == (1, "")
    assert "missing" in both.lines[-1]
    assert (without.code, without.cells[2][1]) == (1, "unreachable")
    assert (wanted.code, wanted.problems) == (0, [])
    assert (unknown.code, unknown.problems) == (1, ["no broker broker-b"])


async def test_once_shows_how_long_a_server_has_not_answered() -> None:
    """The time counts from the request, so that it is the timeout and not 0.0 s."""
    async with ScriptedServer() as hanging:
        shown = await ctl(*at(hanging.address), "--timeout", "0.2s", "top", "--once")

    assert shown.cells[1][1].startswith("no answer for 0.")
    assert shown.cells[1][1] != "no answer for 0.0 s"


def test_narrow_terminal_shows_whole_values(tmp_path: Path) -> None:
    """The screen breaks a value that is longer than the terminal is wide, since it would cut the rest off."""
    with Daemon(tmp_path).listening() as daemon, Peer(daemon.address) as peer:
        Broker().register(peer)
        with Terminal([*COMMAND, *at(daemon.where), "top"], columns=20, lines=60) as shown:
            shown.wait_for(Broker().addr)
            shown.interrupt()
            assert shown.wait() == 0


@pytest.mark.slow
def test_frozen_server_does_not_delay_the_others(tmp_path: Path) -> None:
    """A frozen server is marked while the other one is updated; Ctrl-C restores the screen."""
    with (
        Daemon(tmp_path / "1").listening() as one,
        Daemon(tmp_path / "2").listening() as two,
        Peer(one.address) as first,
        Peer(two.address) as second,
    ):
        Broker().register(first)
        Broker().register(second)
        with Terminal([*COMMAND, *at(one.where, two.where), "top"], columns=160) as shown:
            shown.wait_for("expires in", count=2)
            two.send_signal(signal.SIGSTOP)
            try:
                shown.wait_for("no answer for")
                Broker(name="broker-b", addr="10.0.0.2:10911").register(first)
                shown.wait_for("broker-b")
            finally:
                two.send_signal(signal.SIGCONT)
            shown.wait_for("missing")
            shown.interrupt()
            assert shown.wait() == 0

    assert shown.shown.endswith("\x1b[?25h\x1b[?1049l")
