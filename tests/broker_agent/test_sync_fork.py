"""Forking with an agent: no agent or connection in the child, no loss in the parent."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

import pytest

from namesrv_remoting.codes import FLAG_RESPONSE
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.serializers import encode_command
from tests.support.daemon import Daemon
from tests.support.fake_clock import GUARD_SECONDS
from tests.support.peer import Peer
from tests.support.printing_process import PRELUDE, read_report, run_script

LOOPS = ["uvloop", pytest.param("asyncio", marks=pytest.mark.slow)]

BEGIN = f"""{PRELUDE}
name, server, when = sys.argv[2:]
from namesrv_broker_agent import AgentSettings, SyncBrokerAgent, TopicConfig

settings = AgentSettings(
    cluster_name="c1",
    broker_name=name,
    broker_addr=name + ":1",
    name_servers=server,
    protocol="native",
    connect_timeout_seconds=20.0,
)
agent = SyncBrokerAgent(settings, [TopicConfig("orders")])
agent.start()
"""

FORKS = (
    BEGIN
    + """
if when == "registered":
    agent.registered()
child = os.fork()
if child == 0:
    # should the test not get as far as to end it
    signal.alarm(60)
    # descriptors opened by the child must survive the parent's objects
    mine = [socket.socket() for _ in range(20)]
    gc.collect()
    assert all(os.fstat(each.fileno()) for each in mine)
    report(
        who="child",
        agent=repr(agent),
        servers=len(agent.servers),
        connections=connections(),
        can_stop=agent.stop() is None,
    )
    signal.pause()
report(who="parent", child=child, registered=agent.registered())
signal.pause()
"""
)

CHILD_STARTS = (
    BEGIN
    + """
agent.registered()
agent.create_topic(TopicConfig("bills"))
child = os.fork()
if child == 0:
    settings = settings.model_copy(update={"broker_addr": "child:1"})
    other = SyncBrokerAgent(settings.model_copy(update={"broker_name": name + "-child"}), agent._topics)
    with agent, other:
        report(
            topics=list(agent.topics),
            registered=[agent.registered(), other.registered()],
            connections=connections(),
        )
    sys.exit(0)
report(child_exit=os.waitpid(child, 0)[1])
agent.create_topic(TopicConfig("late"))
report(registered=agent.registered(), connections=connections())
agent.stop()
"""
)

CHILD_DRAINS = (
    BEGIN
    + """
agent.stop()
agent.start()
child = os.fork()
if child == 0:
    error = None
    try:
        agent.drain()
    except RuntimeError as refusal:
        error = str(refusal)
    report(error=error)
    sys.exit(0)
os.waitpid(child, 0)
"""
)

ENDS_WITHOUT_STOP = (
    """
import atexit, threading

def late():
    # registered before the import of the agent, and therefore called after the agent's own handler
    ran = threading.Event()
    agent._loop.call_soon_threadsafe(ran.set)
    report(loop_runs=ran.wait(0.1), can_stop=agent.stop() is None)

atexit.register(late)
"""
    + BEGIN
    + """
report(registered=agent.registered())
"""
)

ENDS_WITH_A_BLOCKED_LOOP = (
    BEGIN
    + """
blocks = threading.Event()

def block():
    report(is_blocked=True)
    blocks.set()
    threading.Event().wait()

agent._loop.call_soon_threadsafe(block)
blocks.wait()

wait = threading.Event.wait

def reported_wait(event, timeout=None):
    report(seconds=timeout)
    return wait(event, timeout)

threading.Event.wait = reported_wait
"""
)

STOPS_AT_THE_END = (
    BEGIN
    + """
import atexit

atexit.register(agent.stop)
report(registered=agent.registered())
"""
)


def running(script: str, address: tuple[str, int], *arguments: str) -> AbstractContextManager["subprocess.Popen[str]"]:
    """A script that uses the server at that address; arguments: loop, broker name, time of the fork."""
    loop, name, *rest = arguments
    return run_script(script, loop, name, f"{address[0]}:{address[1]}", *(rest or [""]))


@contextmanager
def ending(child: int) -> Iterator[None]:
    """Kill the child at the end; its parent may be gone, and its own alarm may have ended it."""
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("when", ["at once", "registered"])
def test_killed_parent_is_evicted_at_once_while_its_child_lives(namesrv: Daemon, loop: str, when: str) -> None:
    """The child holds no connection of its parent, and its agent is not started."""
    name = f"forks-{loop}-{when[:2]}"
    with running(FORKS, namesrv.address, loop, name, when) as process:
        reports = {news.pop("who"): news for news in (read_report(process), read_report(process))}
        with ending(reports["parent"].pop("child")):
            connections = reports["child"].pop("connections")
            # an immediate fork may happen while the connection is being made; see below
            assert connections == 0 or (connections, when) == (1, "at once")
            assert reports == {
                "child": {"agent": "<SyncBrokerAgent [not started]>", "servers": 0, "can_stop": True},
                "parent": {"registered": 1},
            }
            process.kill()
            namesrv.wait_for("broker_evicted", broker_name=name, reason="disconnected")


@pytest.mark.parametrize("loop", LOOPS)
def test_connection_made_during_a_fork_is_replaced(loop: str) -> None:
    """The child cannot close it, so that the parent registers again over a new connection of its own."""
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as listening,
        # fills the accept queue
        socket.create_connection(listening.getsockname()),
        running(FORKS, listening.getsockname(), loop, "early", "at once") as process,
    ):
        assert read_report(process)["who"] == "child"
        listening.settimeout(GUARD_SECONDS)
        listening.accept()[0].close()
        with registered_over(listening) as shared, registered_over(listening) as own:
            parent = read_report(process)
            with ending(parent["child"]):
                assert parent["registered"] == 1
                # closed although the child holds it: otherwise the broker would live as long as the child
                assert shared.is_closed_within(GUARD_SECONDS)
                assert not own.is_closed_within(0.0)
                process.kill()

                assert own.is_closed_within(GUARD_SECONDS)


def registered_over(listening: socket.socket) -> Peer:
    """The next connection, after a registration over it succeeded."""
    peer = Peer(listening.accept()[0], native=True)
    asked = peer.receive()
    assert asked.code == 103
    peer.send_bytes(encode_command(RemotingCommand(0, opaque=asked.opaque, flag=FLAG_RESPONSE, serialize_type=77)))
    return peer


@pytest.mark.parametrize("loop", LOOPS)
def test_child_may_start_an_agent_of_its_own(namesrv: Daemon, loop: str) -> None:
    """The child's agent has the topics of the time of the fork and connections of its own; both end gracefully."""
    name = f"starts-{loop}"
    with running(CHILD_STARTS, namesrv.address, loop, name) as process:
        assert read_report(process) == {"topics": ["orders", "bills"], "registered": [1, 1], "connections": 2}
        assert read_report(process) == {"child_exit": 0}
        assert read_report(process) == {"registered": 1, "connections": 1}
        assert process.wait() == 0

    for broker in (name, f"{name}-child"):
        namesrv.wait_for("broker_evicted", broker_name=broker, reason="unregistered")


@pytest.mark.parametrize("loop", LOOPS)
def test_child_cannot_drain_the_agent_of_its_parent(loop: str) -> None:
    """The child's agent is not started, also if the parent had stopped its own once."""
    with running(CHILD_DRAINS, ("127.0.0.1", 1), loop, f"drains-{loop}") as process:
        assert read_report(process) == {"error": "the agent is not started"}
        assert process.wait() == 0


@pytest.mark.parametrize("loop", LOOPS)
def test_process_without_a_stop_ends_like_a_crash(namesrv: Daemon, loop: str) -> None:
    """The connection closes, the exit code stays, and the loop has halted before the interpreter ends."""
    name = f"ends-{loop}"
    with running(ENDS_WITHOUT_STOP, namesrv.address, loop, name) as process:
        assert read_report(process) == {"registered": 1}
        assert read_report(process) == {"loop_runs": False, "can_stop": True}
        assert process.wait() == 0

    namesrv.wait_for("broker_evicted", broker_name=name, reason="disconnected")


def test_blocked_loop_does_not_keep_the_process() -> None:
    """A callback of the application may wait for ever; the end of the process waits a second for it."""
    with running(ENDS_WITH_A_BLOCKED_LOOP, ("127.0.0.1", 1), "uvloop", "blocked") as process:
        assert read_report(process) == {"is_blocked": True}
        # the time that the end of the interpreter grants to the loop
        assert round(read_report(process)["seconds"], 3) <= 1.0
        assert process.wait(GUARD_SECONDS) == 0


def test_handler_at_the_end_can_stop_the_agent(namesrv: Daemon) -> None:
    """The application's handlers are called while the loop still runs."""
    with running(STOPS_AT_THE_END, namesrv.address, "uvloop", "stops") as process:
        assert read_report(process) == {"registered": 1}
        assert process.wait() == 0

    namesrv.wait_for("broker_evicted", broker_name="stops", reason="unregistered")
