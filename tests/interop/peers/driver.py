"""Makes Java and Go clients produce and consume; they report each event as a line of JSON."""

import json
import logging
import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, Self

from tests.interop.peers.java import JavaProcess
from tests.interop.peers.place import INTEROP
from tests.interop.peers.waiting import GUARD_SECONDS, until_equal
from tests.support.printing_process import PatternProcess

_LOG: Final = logging.getLogger(__name__)

Event = dict[str, Any]
ClientPeer = Literal["client-5", "client-5.5", "client-5.1", "client-4"]

# Consumers rebalance their queues every second, not every 20 s.
_FLAGS: Final = ("-Drocketmq.client.rebalance.waitInterval=1000", "-Drocketmq.client.rebalance.minInterval=1000")


# Cached, since a waiting test parses the same lines many times.
@cache
def _event(line: str) -> Event:
    event: Event = json.loads(line)
    return event


def _events(process: PatternProcess, event: str, fields: dict[str, object]) -> list[Event]:
    events = [_event(line) for line in process.lines if line.startswith("{")]
    wanted = {"event": event, **fields}.items()
    return [entry for entry in events if all(entry.get(name) == value for name, value in wanted)]


class Driver(JavaProcess):
    """One JVM that runs producers and consumers by name; see Driver.java."""

    def __init__(self, home: Path, *, peer: ClientPeer = "client-5", flags: Sequence[str] = ()) -> None:
        super().__init__(home, peer, "Driver", flags=(*_FLAGS, *flags))
        # Expected errors, and the sends that failed by them.
        self._excused: list[Event] = []

    def excuse(self, pattern: str) -> None:
        """Ignore the errors and failures so far, all of which must match the pattern."""
        events = [*self.errors(), *self.failures()]
        assert events
        for entry in events:
            assert re.search(pattern, entry["error"]), entry
        self._excused += events

    def errors(self) -> list[Event]:
        """Errors that were not excused."""
        return [entry for entry in self.events("error") if entry not in self._excused]

    def failures(self) -> list[Event]:
        """Failed sends that were not excused."""
        return [entry for entry in self.events("failed") if entry not in self._excused]

    def events(self, event: str, **fields: object) -> list[Event]:
        return _events(self, event, fields)

    def bodies(self, event: str, **fields: object) -> set[str]:
        return {str(entry["body"]) for entry in self.events(event, **fields)}

    def start_producer(self, name: str, name_servers: Sequence[str], **settings: int | str) -> None:
        """Start a producer; settings: poll and timeout (ms), retries, vip, key (`access:secret`)."""
        self._start("producer", name, ";".join(name_servers), settings=settings)

    def start_consumer(
        self, name: str, name_servers: Sequence[str], topic: str, *, group: str = "", **settings: int | str
    ) -> None:
        """Start a consumer that reads a topic from its first message on; settings: poll (ms), key (`access:secret`)."""
        self._start("consumer", name, ";".join(name_servers), group or f"group-{name}", topic, settings=settings)

    def _start(self, kind: str, name: str, *words: str, settings: dict[str, int | str]) -> None:
        self.write_line(" ".join([kind, name, *words, *(f"{key}={value}" for key, value in settings.items())]))
        self.wait_until(lambda: self.events("started", name=name) or self.errors(), within=GUARD_SECONDS)
        assert not self.errors(), self.errors()

    def send(self, name: str, topic: str, count: int, prefix: str) -> set[str]:
        """Send `prefix-0` and so on, one after the other; returns the acknowledged bodies of this call."""
        before = len(self.events("acked", name=name))
        self._finish(name, f"send {name} {topic} {count} {prefix}", "sent")
        for entry in self.events("failed", name=name):
            # pytest shows this output beside the assertion that misses the message.
            _LOG.warning("not sent: %s", entry)
        acked = self.events("acked", name=name)[before:]
        return {entry["body"] for entry in acked if entry["body"].startswith(f"{prefix}-")}

    def why_unrouted(self, name: str, topic: str) -> str:
        """The exception, with its causes, of a producer's request for the queues of a topic."""
        self._finish(name, f"queues {name} {topic}", "unrouted")
        return str(self.events("unrouted", name=name)[-1]["error"])

    def start_stream(self, name: str, topic: str, prefix: str) -> None:
        """Send `prefix-0` and so on, every 20 ms, until `halt_stream`."""
        self.write_line(f"stream {name} {topic} {prefix} 20")

    def halt_stream(self, name: str) -> None:
        """End the stream of a producer; return once its last message is acknowledged or has failed."""
        self._finish(name, f"halt {name}", "sent")

    def close(self, name: str) -> None:
        self._finish(name, f"close {name}", "closed")

    def _finish(self, name: str, order: str, event: str) -> None:
        before = len(self.events(event, name=name))
        self.write_line(order)
        self.wait_until(lambda: len(self.events(event, name=name)) > before, within=GUARD_SECONDS)

    def pass_on(self, name: str, name_servers: Sequence[str], topic: str, count: int = 20) -> list[Event]:
        """Send messages by a new producer to a new consumer; returns the producer's event for each message.

        Raises:
            AssertionError: a message was not acknowledged, or did not arrive.
        """
        self.start_producer(f"p-{name}", name_servers)
        acknowledged = self.send(f"p-{name}", topic, count, name)
        assert {f"{name}-{n}" for n in range(count)} == acknowledged
        self.close(f"p-{name}")
        self.receive(name, name_servers, topic, acknowledged)
        return self.events("acked", name=f"p-{name}")

    def receive(self, name: str, name_servers: Sequence[str], topic: str, bodies: set[str]) -> None:
        """Return as soon as a new consumer has received exactly these bodies."""
        self.start_consumer(f"c-{name}", name_servers, topic, poll=1000)
        until_equal(bodies, lambda: self.bodies("received", name=f"c-{name}"))
        self.close(f"c-{name}")


class Application(Driver):
    """A stream of messages with its consumer, and a producer that uses new topics only."""

    def __init__(self, home: Path, name_servers: Sequence[str], stream: str, unused: Iterator[str]) -> None:
        super().__init__(home)
        self._stream = stream
        self._unused = unused
        for name in ("writer", "explorer"):
            self.start_producer(name, name_servers, poll=500)
        self.start_consumer("reader", name_servers, stream, poll=500)

    def start(self) -> None:
        self.start_stream("writer", self._stream, "s")
        self.until_more_is_read()

    def send_to_new_topics(self, *, excused: str | None = None) -> None:
        """Send one message to each of some unused topics; each must be acknowledged.

        The first failed message is sent again if its error matches `excused`.
        """
        for topic in islice(self._unused, 3):
            sent = self.send("explorer", topic, 1, f"new-{topic}")
            if not sent and excused is not None:
                self.excuse(excused)
                excused = None
                sent = self.send("explorer", topic, 1, f"new-{topic}")
            assert sent == {f"new-{topic}-0"}

    def until_more_is_read(self) -> None:
        before = len(self.bodies("received", name="reader"))
        self.wait_until(lambda: len(self.bodies("received", name="reader")) >= before + 20, within=GUARD_SECONDS)

    def finish(self) -> None:
        """End the stream; no send may have failed, and all acknowledged messages must have been consumed."""
        self.halt_stream("writer")
        sent = self.bodies("acked", name="writer")
        until_equal(sent, lambda: self.bodies("received", name="reader"))
        assert [*self.failures(), *self.errors()] == []


class GrpcClient(JavaProcess):
    """A producer and a consumer of one topic, over gRPC with a Proxy; see GrpcDriver.java."""

    def __init__(self, home: Path, endpoint: str, topic: str) -> None:
        super().__init__(home, "grpc-5", "GrpcDriver", endpoint, topic, "grpc-group")

    def started(self) -> Self:
        self.wait_for("^started$", within=GUARD_SECONDS)
        return self

    def send(self, body: str) -> None:
        """Send a message; return as soon as it was acknowledged.

        Raises:
            AssertionError: the send failed.
        """
        self.write_line(body)
        self.wait_until(lambda: {f"acked {body}", f"failed {body}"} & set(self.lines), within=GUARD_SECONDS)
        assert f"acked {body}" in self.lines, self.printed()

    def received(self) -> set[str]:
        return {line.removeprefix("received ") for line in self.lines_matching("^received ")}


class GoProcess(PatternProcess):
    """A producer or a consumer; see go/main.go."""

    def __init__(self, home: Path, *words: str, key: str) -> None:
        # The client stores the addresses of its NameServers below its home.
        environ = {"HOME": str(home), "ROCKETMQ_GO_LOG_LEVEL": "warn", "DRIVER_KEY": key}
        super().__init__([INTEROP / "go" / "driver", *words], home=home, environ=environ)

    def started(self) -> Self:
        self.wait_until(lambda: self.events("started"), within=GUARD_SECONDS)
        return self

    def events(self, event: str) -> list[Event]:
        return _events(self, event, {})

    def bodies(self, event: str) -> set[str]:
        return {event["body"] for event in self.events(event)}


class GoProducer(GoProcess):
    """Sends messages one after the other."""

    def __init__(self, home: Path, name_servers: Sequence[str], *, group: str = "go-producers", key: str = "") -> None:
        super().__init__(home, "produce", "--name-servers", ";".join(name_servers), "--group", group, key=key)
        self._sent = 0

    def send(self, topic: str, body: str) -> bool:
        """Send a message; True if it was acknowledged."""
        self._sent += 1
        acked = len(self.events("acked"))
        self.write_line(json.dumps({"topic": topic, "body": body}))
        self.wait_until(
            lambda: len(self.events("acked")) + len(self.events("failed")) >= self._sent, within=GUARD_SECONDS
        )
        return len(self.events("acked")) > acked


class GoConsumer(GoProcess):
    """Reads topics from their first message on."""

    def __init__(
        self,
        home: Path,
        name_servers: Sequence[str],
        topics: Sequence[str],
        *,
        key: str = "",
    ) -> None:
        servers = ";".join(name_servers)
        super().__init__(
            home, "consume", "--name-servers", servers, "--group", "go-consumers", "--topics", ",".join(topics), key=key
        )
