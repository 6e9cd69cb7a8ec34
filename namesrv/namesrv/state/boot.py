"""One boot of the server, from its start until it drains."""

from dataclasses import dataclass, field

from namesrv.routeinfo.tables.liveness import WaitClock
from namesrv.state.expected_back import BrokersExpectedBack
from namesrv.state.snapshot import Readiness
from namesrv_runtime.clock import Clock


@dataclass(slots=True)
class Boot:
    """One boot of the server: it listens, is ready once its brokers are back, and drains at the end."""

    # A random name; a restarted server has another one.
    id: str
    clock: Clock
    # the clock of `readiness` and `expected_back`
    wait_clock: WaitClock
    readiness: Readiness
    # brokers that the next boot expects, although they are not connected now
    expected_back: BrokersExpectedBack
    started_monotonic: float = field(init=False)
    # (host, port) of every listening socket; empty until the server listens.
    addresses: list[tuple[str, int]] = field(default_factory=list)
    is_draining: bool = False

    def __post_init__(self) -> None:
        """Take the time of the start."""
        self.started_monotonic = self.clock.monotonic()

    @property
    def is_listening(self) -> bool:
        """True once brokers and clients can connect."""
        return bool(self.addresses)

    def is_ready(self) -> bool:
        """True if route requests may be answered."""
        return self.readiness.is_ready(self.wait_clock.now())

    def is_serving(self) -> bool:
        """True while the server listens, is ready, and is not draining."""
        return not self.why_not_serving()

    def why_not_serving(self) -> str:
        """Return the reason that the server should get no route requests; empty if it should."""
        if not self.is_listening:
            return "not listening yet"
        if self.is_draining:
            return "draining"
        return "" if self.is_ready() else self.readiness_text().removeprefix("not ready: ")

    def readiness_text(self) -> str:
        """Return why the server is ready or not, for people."""
        return self.readiness.reason(self.wait_clock.now())

    def uptime(self) -> float:
        """Return the seconds since the start, independent of changes of the wall clock."""
        return self.clock.monotonic() - self.started_monotonic
