"""A server that is stopped answers pending requests, closes connections one by one, and saves its brokers."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from namesrv.state import snapshot
from namesrv.state.snapshot import ExpectedBroker
from namesrv_remoting.bodies.dialects import NATIVE
from tests.support.daemon import Start
from tests.support.fake_clock import GUARD_SECONDS
from tests.support.notify_socket import NotifySocket
from tests.support.peer import Broker, Connect

PULL_ROUTES = 20001


def test_idle_server_stops_with_0(start: Start) -> None:
    """SIGINT ends a server with code 0, as SIGTERM does in the other tests, and without connections at once."""
    daemon = start("--drain-seconds", "600")

    daemon.send_signal(signal.SIGINT)

    assert daemon.wait() == 0
    assert daemon.wait_for("stopping")["signal"] == "SIGINT"
    assert daemon.log[-1]["event"] == "stopped"


def test_connections_are_closed_one_after_the_other(start: Start, connect: Connect) -> None:
    """Connections are closed one by one over the drain time, clients before brokers, in any order of arrival.

    The server evicts no broker for it, and the snapshot contains all of them.
    """
    daemon = start("--drain-seconds", "0.8", "--log-level", "debug")
    brokers = [connect(daemon) for _ in range(2)]
    for number, peer in enumerate(brokers):
        Broker(name=f"broker-{number}", addr=f"10.0.0.{number}:10911").register(peer)
    clients = [connect(daemon) for _ in range(2)]
    for peer in clients:
        assert peer.ask(105, {"topic": "orders"}).code == 0

    daemon.send_signal(signal.SIGTERM)
    for peer in [*clients, *brokers]:
        peer.wait_until_closed()

    assert daemon.wait() == 0
    draining = daemon.wait_for("draining")
    assert (draining["connections"], draining["seconds"]) == (4, 0.8)
    closed = daemon.lines("connection_closed")
    assert [peer.address for peer in [*clients, *brokers]] == [line["peer"] for line in closed]
    assert daemon.lines("broker_evicted") == []
    written = snapshot.load(daemon.data_dir / "snapshot.json")
    assert written is not None
    assert daemon.wait_for("listening")["boot_id"] == written.boot_id
    known = [ExpectedBroker("cluster-a", f"broker-{number}", 0, f"10.0.0.{number}:10911") for number in range(2)]
    assert list(written.brokers) == known


@pytest.mark.slow
def test_thread_that_hangs(start: Start, tmp_path: Path) -> None:
    """A stopping server ends although a thread hangs, here in reading settings from a pipe."""
    config = tmp_path / "namesrv.toml"
    config.touch()
    daemon = start("--config", str(config))
    config.unlink()
    os.mkfifo(config)
    daemon.send_signal(signal.SIGHUP)
    # Opening succeeds once the server's thread has opened the other end; nothing is ever written.
    with config.open("w"):
        assert daemon.stop() == 0

    left, stopped = daemon.log[-2:]
    assert left["event"] == "threads_left_behind"
    assert "pathlib" in left["threads"][0]
    assert stopped["event"] == "stopped"


def test_bug_is_in_the_log(data_dir: Path) -> None:
    """An unexpected exception ends the server with code 70, and the last line of the log has the traceback."""
    script = """if True:
        from namesrv.server.housekeeping import Housekeeping
        from namesrv_runtime import program

        async def bug(self):
            raise ZeroDivisionError("a bug")

        Housekeeping.run = bug
        program.namesrv()
    """
    place = ["--listen-host=127.0.0.1", "--listen-port=0", "--http-listen=", f"--data-dir={data_dir}"]
    done = subprocess.run(
        [sys.executable, "-c", script, *place], capture_output=True, text=True, timeout=GUARD_SECONDS, check=False
    )

    *_, last = map(json.loads, done.stderr.splitlines())
    assert (done.returncode, last["event"]) == (70, "crashed")
    assert last["traceback"].endswith("ZeroDivisionError: a bug\n")


@pytest.mark.slow
def test_heartbeat_log_that_hangs(start: Start, data_dir: Path) -> None:
    """A server whose heartbeat log hangs on a disk closes its connections, logs that, and ends without the log."""
    left = data_dir / "heartbeats/dt=2026-03-01/hour=07/ns-00-1.jsonl.open"
    left.parent.mkdir(parents=True)
    # The pipe has the name of a crash's file; compressing it would wait for a writer for ever.
    os.mkfifo(left)
    daemon = start("--nameserver-name", "ns")

    assert daemon.stop() == 0

    assert [line["event"] for line in daemon.log[-2:]] == ["heartbeat_log_incomplete", "stopped"]


@pytest.mark.slow
def test_full_log_pipe_delays_nothing(data_dir: Path, tmp_path: Path) -> None:
    """A full pipe at standard error delays neither responses nor the shutdown."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"." * 4096)
    os.set_blocking(writing, True)
    place = ["--listen-host=127.0.0.1", "--listen-port=0", "--http-listen=", f"--data-dir={data_dir}"]
    words = [sys.executable, "-m", "namesrv", *place, "--drain-seconds=0", "--log-level=debug"]
    with NotifySocket(tmp_path / "notify") as systemd:
        environment = os.environ | {"NOTIFY_SOCKET": systemd.address}
        with subprocess.Popen(words, stderr=writing, env=environment) as process:
            systemd.receive_with("READY")
            process.send_signal(signal.SIGTERM)
            systemd.receive_with("STOPPING")
            assert process.wait(GUARD_SECONDS) == 0
    os.close(writing)
    os.close(reading)


def test_draining_server_answers_its_connections(start: Start, connect: Connect) -> None:
    """A draining server accepts no new connection, and answers a pending watch before it closes the connection."""
    daemon = start("--drain-seconds", "600")
    watching, last = connect(daemon, native=True), connect(daemon)
    Broker().register(last)
    known = watching.call(PULL_ROUTES, topics=["orders"])
    question = {"topics": ["orders"], "boot_id": known["boot_id"], "since": known["revision"], "wait_ms": 300_000}
    watching.send(PULL_ROUTES, None, NATIVE.encode(question))
    # The response shows that the server has received the watch.
    assert connect(daemon, native=True).call(20002)["watchers"] == 1

    daemon.send_signal(signal.SIGTERM)
    daemon.wait_for("draining")

    answer = watching.receive()
    assert (answer.code, msgspec.msgpack.decode(answer.body)["routes"]) == (0, {})
    watching.wait_until_closed()
    with pytest.raises(ConnectionError):
        connect(daemon)
    assert last.ask(105, {"topic": "orders"}).code == 0


def test_second_signal_ends_at_once(start: Start, connect: Connect) -> None:
    """A second signal ends the server at once, with 128 plus the signal's number."""
    daemon = start("--drain-seconds", "600")
    peers = [connect(daemon) for _ in range(2)]
    for peer in peers:
        assert peer.ask(106).code == 0

    daemon.send_signal(signal.SIGTERM)
    daemon.wait_for("draining")
    daemon.send_signal(signal.SIGINT)

    assert daemon.wait() == 130
    assert daemon.wait_for("stopped_at_once")["signal"] == "SIGINT"
