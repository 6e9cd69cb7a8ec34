"""The example broker works, from its first message to its last."""

import json
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from tests.support.agents import wait_until_routed
from tests.support.daemon import Daemon
from tests.support.fake_clock import GUARD_SECONDS
from tests.support.printing_process import PrintingProcess

EXAMPLE = Path(__file__).parents[2] / "demo" / "memory_broker.py"


def example(namesrv: Daemon, command: str, *flags: str) -> PrintingProcess:
    """The script with one of its commands."""
    return PrintingProcess(sys.executable, str(EXAMPLE), command, "--name-servers", namesrv.where, *flags)


def output_of(namesrv: Daemon, command: str, *flags: str) -> tuple[int, list[Any]]:
    """The exit code of a command that ends, and its lines, with JSON lines as values."""
    with example(namesrv, command, *flags) as process:
        code = process.wait()
    return code, [json.loads(line) if line.startswith("{") else line for line in process.lines]


class Broker:
    """The example as a process and a connection to it; a context manager."""

    def __init__(self, namesrv: Daemon, name: str, *flags: str) -> None:
        self.name = name
        self._namesrv = namesrv
        self.process = example(namesrv, "serve", "--name", name, *flags)
        self.address = json.loads(self.process.wait_for("serving"))["address"]
        host, _, port = self.address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), GUARD_SECONDS)
        self._lines = self._socket.makefile("rwb")
        namesrv.wait_for("broker_registered", broker_name=name)

    def ask(self, request: Mapping[str, object] | str) -> Any:
        line = request if isinstance(request, str) else json.dumps(request)
        self._lines.write(line.encode() + b"\n")
        self._lines.flush()
        return json.loads(self._lines.readline())

    def wait_until_left(self) -> None:
        self._namesrv.wait_for("broker_evicted", broker_name=self.name, reason="unregistered")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._lines.close()
        self._socket.close()
        self.process.__exit__(*raised)


def test_messages_that_were_produced_are_consumed(namesrv: Daemon) -> None:
    """Messages go to one queue after the other, and a consumer gets all of them."""
    with Broker(namesrv, "b-messages", "--topic", "greetings") as broker:
        bodies = [f"hello {number}" for number in range(6)]
        code, produced = output_of(namesrv, "produce", "--topic", "greetings", *bodies)
        assert code == 0
        assert [
            {"broker": broker.address, "queue": queue, "offset": offset}
            for queue, offset in ((0, 0), (1, 0), (2, 0), (3, 0), (0, 1), (1, 1))
        ] == produced

        code, consumed = output_of(namesrv, "consume", "--topic", "greetings")
        assert code == 0
        assert [(message["queue"], message["body"]) for message in consumed] == [
            (0, "hello 0"),
            (0, "hello 4"),
            (1, "hello 1"),
            (1, "hello 5"),
            (2, "hello 2"),
            (3, "hello 3"),
        ]


@pytest.mark.slow
def test_drain_lets_consumers_finish(namesrv: Daemon) -> None:
    """A draining broker gets no new messages, serves those that it has, and then leaves."""
    with Broker(namesrv, "b-drain", "--topic", "drain", "--poll-seconds", "3600") as broker:
        output_of(namesrv, "produce", "--topic", "drain", "last")
        broker.process.send_signal(signal.SIGUSR1)
        wait_until_routed(namesrv, broker.name, drain=4)

        assert output_of(namesrv, "produce", "--topic", "drain", "too late") == (
            1,
            ["memory_broker: no queue of 'drain' can be written to"],
        )
        code, consumed = output_of(namesrv, "consume", "--topic", "drain")
        assert (code, [message["body"] for message in consumed]) == (0, ["last"])
        assert broker.process.stop() == 0
        broker.wait_until_left()
    # ends by itself after one poll period of clients
    with Broker(namesrv, "b-drained", "--poll-seconds", "0") as broker:
        broker.process.send_signal(signal.SIGUSR1)
        assert broker.process.wait() == 0
        broker.wait_until_left()
