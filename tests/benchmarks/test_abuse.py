"""Targets of attacks, and the bytes that attacks send."""

import socket
import threading
from pathlib import Path

import pytest

from benchmarks.abuse import payloads
from benchmarks.abuse.attacks import Attack
from benchmarks.abuse.costs import Costs, Durations
from benchmarks.abuse.memory_group import NoMemoryGroupError, place
from benchmarks.abuse.scenario import Times, peer_figures
from benchmarks.abuse.well_behaved import PATIENCE_SECONDS, HttpPeers, Newcomer, Newcomers, Pull, Seen
from benchmarks.harness.figures import Figure
from benchmarks.harness.servers import Server
from namesrv_remoting.bodies.register import decode_body, decode_native_body
from namesrv_remoting.codes import CURRENT_VERSION, ResponseCode
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.serializers import encode_command
from tests.support.steps import finished

DURATIONS = Durations(2.0, 6.0, 1.0, 4.0, 0.5)
ONE, MANY = Attack("one peer"), Attack("many peers", peers=200, may_refuse_clients=True)


def costs(attack: Attack = ONE, **changes: float) -> Costs:
    """The costs of an attack of 2 MiB that are exactly at the bounds of one peer."""
    at_bounds = {
        "weight": 2 << 20,
        "attempts": 1,
        "successes": 1,
        "cpu_seconds": 0.4,
        "peak_bytes": 67.1e6,
        "table_bytes": 0.0,
    }
    return Costs("a", attack, DURATIONS, **{**at_bounds, **changes})  # type: ignore[arg-type]  # numbers


def pulls(seconds: float, cpu_seconds: float) -> list[Pull]:
    """A puller's only pull."""
    return [Pull(0.0, seconds, cpu_seconds, (), has_dead=False)]


def newcomer(seconds: float = 1.0, refused: str = "", *, is_broker: bool = False) -> list[Newcomer]:
    """The only newcomer."""
    return [Newcomer(0.0, is_broker, seconds, refused)]


QUIET = pulls(0.002, 0.001)


@pytest.mark.parametrize(
    ("figures", "missed"),
    [
        (costs().figures(), []),
        (costs(cpu_seconds=0.41).figures(), ["a.cpu"]),
        # A tiny attack may cost as much as a mebibyte.
        (costs(cpu_seconds=0.2, weight=10_000).figures(), []),
        (costs(cpu_seconds=0.21, weight=10_000).figures(), ["a.cpu"]),
        (costs(peak_bytes=67.2e6).figures(), ["a.memory"]),
        (costs(peak_bytes=87.0e6, table_bytes=20.0e6).figures(), []),
        # The bound for many peers is one of memory.
        (costs(MANY, cpu_seconds=9.0, peak_bytes=536.9e6).figures(), []),
        (costs(MANY, peak_bytes=537.0e6).figures(), ["a.memory"]),
        (costs().waits(pulls(0.006, 0.05), QUIET), []),
        # Others kept the processor.
        (costs().waits(pulls(9.0, 0.005), QUIET), []),
        (costs().waits(pulls(0.0061, 0.0061), QUIET), ["a.p99"]),
        (costs().waits(pulls(0.005, 0.005), pulls(0.0001, 0.0001)), []),
        (costs().waits(pulls(0.06, 0.051), pulls(0.02, 0.02)), ["a.stall"]),
        (costs(MANY).waits(pulls(0.06, 0.051), pulls(0.02, 0.02)), []),
        (costs().newcomers(newcomer()), []),
        (costs().newcomers(newcomer(1.1)), ["a.slow"]),
        (costs().newcomers(newcomer(refused="closed")), ["a.refused"]),
        # Without a free connection slot a client may be refused or have to wait.
        (costs(MANY).newcomers([*newcomer(6.0), *newcomer(refused="closed")]), []),
        (costs(MANY).newcomers(newcomer(6.1)), ["a.slow"]),
        (costs(MANY).newcomers(newcomer(refused="closed", is_broker=True)), ["a.refused"]),
        ([costs().overdue(4.7)], []),
        ([costs().overdue(4.71)], ["a.overdue"]),
        ([costs(MANY).overdue(9.0)], []),
    ],
)
def test_a_target_is_missed_beyond_its_bound(figures: list[Figure], missed: list[str]) -> None:
    """A figure at its bound meets the target, and a larger one misses it."""
    assert [figure.name for figure in figures if figure.verdict == "missed"] == missed


def test_newcomer_that_waits_since_before_the_attack_counts() -> None:
    """A newcomer that connected before the attack and is served long after its start has waited for the attack."""
    waiting = Newcomer(0.9, is_broker=False, seconds=3.0, refused="")
    served = Newcomer(0.1, is_broker=False, seconds=0.8, refused="closed")

    times = Times(began=1.0, ended=7.0, is_dead_evicted=True)
    figures = peer_figures(costs(), Seen([], [served, waiting], 0, [], []), times, quiet_since=0.0)

    found = {figure.name: figure for figure in figures}
    assert (found["a.slow"].value, found["a.refused"].details) == (3.0, "0/1")


def test_pulls_after_the_attack_are_not_quiet() -> None:
    """The server may still work on what the attacker has sent, and pulls are as slow as during the attack."""
    pulled = [
        Pull(at, seconds, seconds, (), has_dead=False) for at, seconds in ((0.5, 0.001), (2.0, 0.01), (9.0, 0.01))
    ]

    times = Times(began=1.0, ended=7.0, is_dead_evicted=True)
    figures = peer_figures(costs(), Seen(pulled, [], 0, [], []), times, quiet_since=0.0)

    assert [figure.name for figure in figures if figure.verdict == "missed"] == ["a.p99"]


def test_newcomer_with_an_error_response_is_refused() -> None:
    """A response such as SYSTEM_BUSY is no service."""
    busy = encode_command(RemotingCommand(ResponseCode.SYSTEM_BUSY, flag=1, remark="memory is used up"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        accepting = threading.Thread(target=_respond, args=(listening, busy))
        accepting.start()
        newcomers = Newcomers(Server(0, listening.getsockname()[1]))
        newcomers.come()
        accepting.join()

    assert [one.refused for one in newcomers.seen] == ["response code 2: memory is used up"]


def test_probe_without_a_response_counts_as_the_longest_wait() -> None:
    """A kubelet restarts a server that refuses its probes, or sends part of a response."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        accepting = threading.Thread(
            target=_respond, args=(listening, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok")
        )
        accepting.start()
        peers = HttpPeers(Server(0, 0, listening.getsockname()[1]))
        peers.probe()
        accepting.join()
    peers.probe()

    assert [seconds for _, seconds in peers.probes] == [PATIENCE_SECONDS] * 2


def _respond(listening: socket.socket, response: bytes) -> None:
    peer = listening.accept()[0]
    with peer:
        peer.recv(4096)
        peer.sendall(response)


def test_changed_body_has_the_same_content_in_other_bytes() -> None:
    """A changed body has the same content in other bytes, so that a server decodes it again."""
    plain, packed = payloads.json_topics(3), payloads.native_topics(3)
    names = ["0", "1", "2"]

    for body in (plain, payloads.changed(plain)):
        decoded = finished(decode_body(body, CURRENT_VERSION, compressed=False))
        assert [topic.topic_name for topic in decoded.topic_configs] == names
    for body in (packed, payloads.changed(packed)):
        decoded = finished(decode_native_body(body, compressed=False))
        assert [topic.topic_name for topic in decoded.topic_configs] == names
    assert payloads.changed(packed) != packed


@pytest.mark.parametrize(
    ("cgroups", "parent"),
    [
        # Both versions are mounted; v1 has the memory controller.
        ("4:memory:/jobs/7\n1:cpu:/\n0::/init.scope\n", Path("memory/jobs/7")),
        ("0::/user.slice/session-1.scope\n", Path("user.slice")),
        ("0::/\n", Path()),
    ],
)
def test_a_memory_group_is_made_where_that_is_allowed(cgroups: str, parent: Path) -> None:
    """The group is below our own group with v1, beside it with v2."""
    assert place(cgroups)[0] == parent


def test_a_machine_may_have_no_memory_groups() -> None:
    """The error names the missing memory groups."""
    with pytest.raises(NoMemoryGroupError, match="this machine has none"):
        place("1:cpu:/\n")
