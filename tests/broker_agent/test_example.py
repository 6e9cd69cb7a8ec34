"""The example broker works, from its first message to its last."""

import contextlib
import json
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tests.support.agents import wait_until_routed
from tests.support.daemon import Daemon
from tests.support.fake_clock import GUARD_SECONDS
from tests.support.talking_process import TalkingProcess

EXAMPLE = Path(__file__).parents[2] / "demo" / "memory_broker.py"


def example(namesrv: Daemon, command: str, *flags: str) -> TalkingProcess:
    """The script with one of its commands."""
    return TalkingProcess(sys.executable, str(EXAMPLE), command, "--name-servers", namesrv.where, *flags)


def said_by(namesrv: Daemon, command: str, *flags: str) -> tuple[int, list[Any]]:
    """The exit code of a command that ends, and its lines, those in JSON as values."""
    with example(namesrv, command, *flags) as process:
        code = process.wait()
    return code, [json.loads(line) if line.startswith("{") else line for line in process.lines]


class Broker:
    """The example as a process, and a connection to it; a context manager."""

    def __init__(self, namesrv: Daemon, name: str, *flags: str) -> None:
        self.name = name
        self._namesrv = namesrv
        self.process = example(namesrv, "serve", "--name", name, *flags)
        self.address = json.loads(self.process.wait_for("serving"))["address"]
        host, _, port = self.address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), GUARD_SECONDS)
        self._lines = self._socket.makefile("rwb")
        namesrv.wait_for("broker_registered", broker_name=name)

    def ask(self, question: Mapping[str, object] | str) -> Any:
        line = question if isinstance(question, str) else json.dumps(question)
        self._lines.write(line.encode() + b"\n")
        self._lines.flush()
        return json.loads(self._lines.readline())

    def hangs_up(self) -> bool:
        """Whether it closes the connection, without another word."""
        return self._lines.read(1) == b""

    def wait_until_left(self) -> None:
        self._namesrv.wait_for("broker_evicted", broker_name=self.name, reason="unregistered")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._lines.close()
        self._socket.close()
        self.process.__exit__(*raised)


def test_messages_that_were_produced_are_consumed(namesrv: Daemon) -> None:
    """Over the routes that the NameServer gives: one queue after the other, and all of them back."""
    with Broker(namesrv, "b-messages", "--topic", "greetings") as broker:
        bodies = [f"hello {number}" for number in range(6)]
        code, produced = said_by(namesrv, "produce", "--topic", "greetings", *bodies)
        assert 0 == code
        assert [
            {"broker": broker.address, "queue": queue, "offset": offset}
            for queue, offset in ((0, 0), (1, 0), (2, 0), (3, 0), (0, 1), (1, 1))
        ] == produced

        code, consumed = said_by(namesrv, "consume", "--topic", "greetings")
        assert 0 == code
        assert [(0, "hello 0"), (0, "hello 4"), (1, "hello 1"), (1, "hello 5"), (2, "hello 2"), (3, "hello 3")] == [
            (message["queue"], message["body"]) for message in consumed
        ]


def test_line_protocol(namesrv: Daemon) -> None:
    """Create, produce, consume: one answer for each line, and the new topic is known everywhere."""
    with Broker(namesrv, "b-lines") as broker:
        assert {"ok": True} == broker.ask({"op": "create", "topic": "lines", "queues": 2})
        wait_until_routed(namesrv, broker.name, lines=6)
        assert {"error": "topic lines exists already"} == broker.ask({"op": "create", "topic": "lines"})

        assert [{"offset": 0}, {"offset": 1}] == [
            broker.ask({"op": "produce", "topic": "lines", "queue": 1, "body": body}) for body in ("a", "b")
        ]
        consume = {"op": "consume", "topic": "lines", "queue": 1}
        assert {"messages": ["a", "b"], "next": 2} == broker.ask({**consume, "offset": 0})
        assert {"messages": ["b"], "next": 2} == broker.ask({**consume, "offset": 1})
        assert {"messages": [], "next": 2} == broker.ask({**consume, "offset": 2})
        assert {"messages": [], "next": 0} == broker.ask({**consume, "queue": 0})


def test_what_cannot_be_done_is_an_answer(namesrv: Daemon) -> None:
    """Each line has one, whatever it says, and the next line is read."""
    nameless = "must be 1 to 255 bytes of printable characters without blanks"
    with Broker(namesrv, "b-errors", "--topic", "errors") as broker:
        for question, error in (
            ("nonsense", "Expecting value: line 1 column 1 (char 0)"),
            ("5", "not an object"),
            ("[" * 100_000, ("maximum recursion depth exceeded", "Stack overflow")),
            ('{"op": "delete"}', "unknown op 'delete' (one of produce, consume, create)"),
            ('{"op": "create"}', f"invalid topic name '': {nameless}"),
            ('{"op": "create", "topic": "T", "queues": 0}', "topic T: read_queue_nums 0 is not between 1 and 65535"),
            ('{"op": "create", "topic": "T", "queues": "x"}', "invalid literal for int()"),
            ('{"op": "produce", "topic": "gone"}', "topic 'gone' does not exist"),
            ('{"op": "produce", "topic": "errors", "queue": 4}', "topic 'errors' has no queue 4"),
            ('{"op": "produce", "topic": "errors", "queue": -1}', "topic 'errors' has no queue -1"),
            ('{"op": "produce", "topic": "errors", "queue": Infinity}', "cannot convert float infinity to integer"),
            ('{"op": "consume", "topic": "errors", "offset": null}', "int() argument must be"),
        ):
            answer = broker.ask(question)
            assert ["error"] == list(answer)
            assert answer["error"].startswith(error), question
        assert {"offset": 0} == broker.ask({"op": "produce", "topic": "errors"})
        assert 0 == broker.process.stop()
        assert [] == broker.process.said("Traceback")


def test_line_that_is_too_long_ends_the_connection(namesrv: Daemon) -> None:
    """It cannot be told where the next one would begin; others are served."""
    with Broker(namesrv, "b-long", "--topic", "long") as broker:
        with socket.create_connection(broker._socket.getpeername(), GUARD_SECONDS) as other:
            other.sendall(b"x" * (1 << 20) + b"x\n")
            # what it has not read is a reset
            with contextlib.suppress(ConnectionResetError):
                assert b"" == other.recv(1)
        assert {"offset": 0} == broker.ask({"op": "produce", "topic": "long"})


def test_consume_goes_on_until_a_queue_is_empty_and_end_hangs_up(namesrv: Daemon) -> None:
    """Also when it holds more than fits one answer; the broker ends silently while a client is connected."""
    with Broker(namesrv, "b-many", "--topic", "many") as broker:
        for number in range(250):
            broker.ask({"op": "produce", "topic": "many", "queue": 2, "body": str(number)})

        code, consumed = said_by(namesrv, "consume", "--topic", "many")
        assert (0, [str(number) for number in range(250)]) == (code, [message["body"] for message in consumed])
        assert 0 == broker.process.stop()
        assert broker.hangs_up()
        assert [] == broker.process.said("Traceback|ERROR")
        broker.wait_until_left()


def test_drain_lets_consumers_finish(namesrv: Daemon) -> None:
    """No new message is sent to it, those that it has can be fetched, and then it leaves."""
    with Broker(namesrv, "b-drain", "--topic", "drain", "--poll-seconds", "3600") as broker:
        said_by(namesrv, "produce", "--topic", "drain", "last")
        broker.process.send_signal(signal.SIGUSR1)
        wait_until_routed(namesrv, broker.name, drain=4)

        assert (1, ["memory_broker: no queue of 'drain' can be written to"]) == said_by(
            namesrv, "produce", "--topic", "drain", "too late"
        )
        code, consumed = said_by(namesrv, "consume", "--topic", "drain")
        assert (0, ["last"]) == (code, [message["body"] for message in consumed])
        assert 0 == broker.process.stop()
        broker.wait_until_left()
    # by itself, when clients had the time to hear of it
    with Broker(namesrv, "b-drained", "--poll-seconds", "0") as broker:
        broker.process.send_signal(signal.SIGUSR1)
        assert 0 == broker.process.wait()
        broker.wait_until_left()


def test_commands_that_fail_say_why(namesrv: Daemon) -> None:
    """The last line says why, behind what the client logs; the exit code is 1."""
    for arguments, reason in (
        (("consume", "--topic", "nowhere"), f"topic nowhere does not exist, according to {namesrv.where}"),
        (
            ("produce", "--topic", "nowhere", "x", "--name-servers", "127.0.0.1:1"),
            "topic nowhere: no NameServer could answer: 127.0.0.1:1: no connection to 127.0.0.1:1",
        ),
        (("serve", "--name", ""), "broker_name: '': must be 1 to 255 printable characters without blanks"),
    ):
        code, lines = said_by(namesrv, *arguments)
        assert 1 == code
        assert lines[-1].startswith(f"memory_broker: {reason}")
