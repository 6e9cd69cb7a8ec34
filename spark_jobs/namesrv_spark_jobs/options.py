"""What an analysis is told besides its files."""

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """The grid of settings that the heartbeats are replayed under: every policy with every scan and every poll."""

    # how long a broker may be silent, for brokers that asked for no time of their own
    expiry_ms: tuple[int, ...] = (30_000, 60_000, 120_000)
    scan_ms: tuple[int, ...] = (5_000, 10_000)
    poll_ms: tuple[int, ...] = (5_000, 30_000)
    # thresholds of the accrual detector
    phi: tuple[float, ...] = (5.0, 8.0, 12.0)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What an analysis is told besides its files."""

    # lines with since_ms <= ts_ms < until_ms count; settings are taken from `start` and `opened` lines of any time
    since_ms: int | None = None
    until_ms: int | None = None
    # empty: all of them. A topic narrows what is said of routes and clients, not of brokers.
    clusters: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    nameservers: tuple[str, ...] = ()
    # how often clients ask for routes, which no NameServer's log says
    poll_ms: int = 30_000
    what_if: WhatIf = field(default_factory=WhatIf)
    # addresses, agents and clients are told by a digest
    redact: bool = False
