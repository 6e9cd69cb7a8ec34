"""The settings that are tried, and what each comes to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from namesrv_spark_jobs.options import WhatIf
from tests.spark_jobs.reference.boots import Boot
from tests.spark_jobs.reference.numbers import MICROSECONDS
from tests.spark_jobs.reference.policies import EvenScans, Fixed, LoggedScans, Phi, Policy
from tests.spark_jobs.reference.replay import Eviction, client_staleness, replay


@dataclass(frozen=True, slots=True)
class Trial:
    """One policy with one scan interval, replayed on all boots."""

    # logged, fixed or phi
    policy: str
    expiry_ms: int | None
    phi: float | None
    scan_ms: int | None
    evictions: list[Eviction]

    @property
    def true_ones(self) -> list[Eviction]:
        """Evictions of brokers that did not come back."""
        return [eviction for eviction in self.evictions if not eviction.is_false]

    def registry(self) -> list[int]:
        """The staleness of each true one."""
        return [eviction.staleness for eviction in self.true_ones]

    def clients(self, poll_ms: int) -> list[float]:
        """What clients would have seen of each true one."""
        poll = poll_ms * MICROSECONDS
        return [value for eviction in self.true_ones for value in client_staleness(eviction, poll)]


def trials(boots: Sequence[Boot], grid: WhatIf) -> list[Trial]:
    """The logged settings, then every policy with every scan interval."""
    logged = [eviction for boot in boots for eviction in replay(boot, Fixed(), LoggedScans(boot))]
    found = [Trial("logged", None, None, None, logged)]
    for policy, expiry_ms, phi in _policies(grid):
        for scan_ms in grid.scan_ms:
            evictions = [
                eviction for boot in boots for eviction in replay(boot, policy, EvenScans(boot, scan_ms * MICROSECONDS))
            ]
            found.append(Trial("fixed" if phi is None else "phi", expiry_ms, phi, scan_ms, evictions))
    return found


def _policies(grid: WhatIf) -> Iterator[tuple[Policy, int | None, float | None]]:
    for expiry_ms in grid.expiry_ms:
        yield Fixed(expiry_ms * MICROSECONDS), expiry_ms, None
    for threshold in grid.phi:
        yield Phi(threshold), None, threshold
