"""Makes Java clients produce and consume."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

from tests.interop.peers.java import JavaProcess, java_command
from tests.interop.peers.place import INTEROP, class_path
from tests.interop.peers.waiting import GUARD_SECONDS

_LOG: Final = logging.getLogger(__name__)

Said = dict[str, Any]

# Consumers look for queues of their own every second, not every 20 s.
_FLAGS: Final = (
    "-Drocketmq.client.rebalance.waitInterval=1000",
    "-Drocketmq.client.rebalance.minInterval=1000",
)


class Driver(JavaProcess):
    """One JVM with as many producers and consumers as are started in it, told by name what to do; see Driver.java."""

    def __init__(self, home: Path, *, peer: Literal["client-5", "client-5.1"] = "client-5") -> None:
        classes = f"{INTEROP / 'java' / 'classes'}:{class_path(peer)}"
        super().__init__(java_command(classes, "Driver", home=home, flags=_FLAGS), home=home, shown="java clients")

    # -- what it said -------------------------------------------------------------------------------------------------

    def events(self, event: str, **fields: object) -> list[Said]:
        """What happened so far of a kind, with these fields."""
        said = [json.loads(line) for line in self.lines if line.startswith("{")]
        return [
            entry
            for entry in said
            if entry["event"] == event and all(entry.get(name) == value for name, value in fields.items())
        ]

    def wait_for_event(self, event: str, *, count: int = 1, within: float = GUARD_SECONDS, **fields: object) -> Said:
        """The first (or the `count`th) of a kind with these fields, as soon as it happened.

        Raises:
            AssertionError: it does not in that time.
        """
        self.wait_until(lambda: len(self.events(event, **fields)) >= count, within=within)
        return self.events(event, **fields)[count - 1]

    def bodies(self, event: str, **fields: object) -> set[str]:
        """The bodies of the messages to which that happened."""
        return {str(entry["body"]) for entry in self.events(event, **fields)}

    # -- what it is told ----------------------------------------------------------------------------------------------

    def start_producer(self, name: str, name_servers: Sequence[str], **settings: int) -> None:
        """Start a producer; settings: poll and timeout (ms), retries."""
        self.tell(" ".join(["producer", name, ";".join(name_servers), *_spelt(settings)]))
        self._started(name)

    def start_consumer(
        self, name: str, name_servers: Sequence[str], topic: str, *, group: str = "", **settings: int
    ) -> None:
        """Start a consumer that reads a topic from its first message on; setting: poll (ms)."""
        words = ["consumer", name, ";".join(name_servers), group or f"group-{name}", topic, *_spelt(settings)]
        self.tell(" ".join(words))
        self._started(name)

    def send(self, name: str, topic: str, count: int, prefix: str) -> set[str]:
        """Send `prefix-0` and so on, one after the other; the bodies that were acknowledged."""
        before = len(self.events("sent", name=name))
        self.tell(f"send {name} {topic} {count} {prefix}")
        self.wait_for_event("sent", name=name, count=before + 1)
        for entry in self.events("failed", name=name):
            # pytest shows it beside the assertion that misses the message
            _LOG.warning("not sent: %s", entry)
        return {body for body in self.bodies("acked", name=name) if body.startswith(f"{prefix}-")}

    def start_stream(self, name: str, topic: str, prefix: str, *, interval_ms: int = 20) -> None:
        """Send `prefix-0` and so on until it is halted."""
        self.tell(f"stream {name} {topic} {prefix} {interval_ms}")

    def halt_stream(self, name: str) -> None:
        """End the stream of a producer; return once its last message is acknowledged or has failed."""
        before = len(self.events("sent", name=name))
        self.tell(f"halt {name}")
        self.wait_for_event("sent", name=name, count=before + 1)

    def close(self, name: str) -> None:
        """End a producer or consumer."""
        self.tell(f"close {name}")
        self.wait_for_event("closed", name=name)

    def _started(self, name: str) -> None:
        self.wait_until(lambda: self.events("started", name=name) or self.events("error"))
        assert [] == self.events("error")


def _spelt(settings: dict[str, int]) -> list[str]:
    return [f"{key}={value}" for key, value in settings.items()]
