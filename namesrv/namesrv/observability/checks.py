"""Health checks: is the server alive, and is it ready to answer?"""

from dataclasses import dataclass
from typing import Final

from namesrv.context import Namesrv

# Housekeeping runs every second; one that has been stuck for so long needs a restart.
STUCK_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Check:
    """One check and its result."""

    name: str
    is_ok: bool
    # what was found, for people
    found: str

    def __str__(self) -> str:
        return f"[{'+' if self.is_ok else '-'}] {self.name}: {self.found}"


def liveness(namesrv: Namesrv) -> list[Check]:
    """Checks that a restart would fix."""
    return [_housekeeping(namesrv)]


def readiness(namesrv: Namesrv) -> list[Check]:
    """Checks that must pass before the server gets route questions."""
    reason = namesrv.readiness.reason(namesrv.clock.monotonic())
    return [
        Check("listening", namesrv.is_listening, "yes" if namesrv.is_listening else "not yet"),
        Check("brokers", namesrv.is_ready(), reason),
        Check("registered", True, _registered(namesrv)),  # noqa: FBT003 - for people: other servers may have no more
        Check("staying", not namesrv.is_draining, "draining" if namesrv.is_draining else "yes"),
        _housekeeping(namesrv),
    ]


def report(checks: list[Check], *, verbose: bool) -> str:
    """The checks as a page: each on a line when verbose, else those that failed, or ok."""
    shown = [str(check) for check in checks if verbose or not check.is_ok]
    is_ok = all(check.is_ok for check in checks)
    return "\n".join([*shown, "ok" if is_ok else "failed"]) + "\n"


def _registered(namesrv: Namesrv) -> str:
    if namesrv.is_ready_without_brokers():
        return "no broker, although there were some before the start: check their logs and the network"
    return f"{len(namesrv.manager.tables.broker_live_table)} brokers"


def _housekeeping(namesrv: Namesrv) -> Check:
    last_tick = namesrv.counters.last_tick
    ago = namesrv.uptime() if last_tick is None else namesrv.clock.monotonic() - last_tick
    return Check("housekeeping", ago <= STUCK_SECONDS, f"last ran {ago:.1f} s ago")
