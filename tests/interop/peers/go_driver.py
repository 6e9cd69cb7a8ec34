"""Makes Go clients produce and consume."""

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Self

from tests.interop.peers.place import INTEROP
from tests.interop.peers.waiting import GUARD_SECONDS
from tests.support.heard import Heard

PROGRAM: Final = INTEROP / "go" / "driver"

Said = dict[str, Any]


class GoProcess:
    """A producer or a consumer, as a context manager; at its end the process is gone. See go/main.go.

    What the library logs goes to the file `printed.log` in its home.
    """

    def __init__(self, home: Path, *words: str) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home = home
        with (home / "printed.log").open("ab") as errors:
            self._process = subprocess.Popen(
                [PROGRAM, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=home,
                # it keeps the addresses of its NameServers below its home
                env={"HOME": str(home), "ROCKETMQ_GO_LOG_LEVEL": "warn"},
            )
        self._heard: Heard[Said] = Heard(self._process.stdout, json.loads)
        # everything it said so far
        self._said = self._heard.all

    def started(self) -> Self:
        """Return once the client has started."""
        self.wait_until(lambda: self.events("started"))
        return self

    def events(self, event: str) -> list[Said]:
        """What happened so far of a kind."""
        return [said for said in self._said if said["event"] == event]

    def bodies(self, event: str) -> set[str]:
        """The bodies of the messages to which that happened."""
        return {said["body"] for said in self.events(event)}

    def wait_until(self, condition: Callable[[], object], *, within: float = GUARD_SECONDS) -> None:
        """Return as soon as a condition on what it said is so.

        Raises:
            AssertionError: not in that time, or the process ended without.
        """
        is_so = self._heard.wait_until(condition, within)
        assert is_so, f"{self} after {within:g} s: {self._said[-10:]} {self._printed()}"

    def _printed(self) -> str:
        return (self.home / "printed.log").read_text(encoding="utf-8", errors="replace")[-2000:]

    def tell(self, **order: str) -> None:
        """Write a line to its input."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def __enter__(self) -> Self:
        """Itself; the process runs already."""
        return self

    def __exit__(self, *raised: object) -> None:
        """End the process if it still runs."""
        self._process.kill()
        self._process.wait(GUARD_SECONDS)
        self._heard.to_the_end(GUARD_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} [{self._process.pid} | {len(self._said)} lines]>"


class GoProducer(GoProcess):
    """Sends what it is told, one message after the other."""

    def __init__(self, home: Path, name_servers: Sequence[str], *, group: str = "go-producers") -> None:
        super().__init__(home, "produce", "--name-servers", ";".join(name_servers), "--group", group)
        self._sent = 0

    def send(self, topic: str, body: str) -> Said:
        """Send a message; what became of it: acked or failed."""
        self._sent += 1
        self.tell(topic=topic, body=body)
        self.wait_until(lambda: len(self._answers()) >= self._sent)
        return self._answers()[self._sent - 1]

    def _answers(self) -> list[Said]:
        return [said for said in self._said if said["event"] in {"acked", "failed"}]


class GoConsumer(GoProcess):
    """Reads topics from their first message on."""

    def __init__(
        self, home: Path, name_servers: Sequence[str], topics: Sequence[str], *, group: str = "go-consumers"
    ) -> None:
        servers = ";".join(name_servers)
        super().__init__(home, "consume", "--name-servers", servers, "--group", group, "--topics", ",".join(topics))
