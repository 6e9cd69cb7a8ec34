"""Replays: who would have been evicted, and when, under other settings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.spark_jobs.reference.boots import Boot
from tests.spark_jobs.reference.lines import BEATS, Line
from tests.spark_jobs.reference.lives import Broker, is_same_process, lines_of_brokers
from tests.spark_jobs.reference.policies import Gaps, Policy, Scan, Scans

# of the next poll, over its period
PHASES = 10


@dataclass(frozen=True, slots=True)
class Gap:
    """One beat, and all that bears on how long the silence after it may last."""

    beat: Line
    # how many lives ended before it
    life: int
    # between the beats of this life up to this one
    earlier: Gaps
    # of the same address; liveness time
    next_beat: int | None
    closed: int | None
    # the next one of the same broker
    return_of_broker: Line | None


@dataclass(frozen=True, slots=True)
class Eviction:
    """One eviction of the replay; liveness time."""

    boot: Boot
    key: tuple[str, str]
    life: int
    beat: Line
    at: int
    # the logged number of the scan; None when scans are not logged ones
    scan: int | None
    is_false: bool

    @property
    def staleness(self) -> int:
        """How long the broker had been silent."""
        return self.at - self.boot.live[self.beat.seq]


def replay(boot: Boot, policy: Policy, scans: Scans) -> list[Eviction]:
    """The evictions of one boot under a policy."""
    return [
        Eviction(boot, key, gap.life, gap.beat, scan.at, scan.number, _came_back(boot, gap, scan.at))
        for key, lines in lines_of_brokers(boot).items()
        for gap in _gaps(boot, lines)
        if (scan := _evicting_scan(boot, key, gap, policy, scans)) is not None
    ]


def _gaps(boot: Boot, lines: Sequence[Line]) -> Iterator[Gap]:
    live = boot.live
    beats = [number for number, line in enumerate(lines) if line.event in BEATS]
    life, earlier = sum(line.event == "evict" for line in lines[: beats[0]]) if beats else 0, Gaps()
    for here, there in pairwise([*beats, len(lines)]):
        beat, between = lines[here], lines[here + 1 : there]
        following = lines[there] if there < len(lines) else None
        closing = [line for line in between if line.get("reason") != "silent"]
        yield Gap(
            beat,
            life,
            earlier,
            None if following is None else live[following.seq],
            live[closing[0].seq] if closing else None,
            _next_of_same(lines, here),
        )
        if between:
            life, earlier = life + len(between), Gaps()
        elif following is not None:
            earlier = earlier.and_one(live[following.seq] - live[beat.seq])


def _next_of_same(lines: Sequence[Line], here: int) -> Line | None:
    later = (lines[there] for there in range(here + 1, len(lines)))
    return next((line for line in later if line.event in BEATS and Broker.of(line) == Broker.of(lines[here])), None)


def _evicting_scan(boot: Boot, key: tuple[str, str], gap: Gap, policy: Policy, scans: Scans) -> Scan | None:
    deadline = policy.deadline(boot, gap.beat, gap.earlier)
    scan = None if deadline is None else scans.first_after(deadline, key)
    if scan is None or any(end is not None and end <= scan.at for end in (gap.next_beat, gap.closed)):
        return None
    return scan


def _came_back(boot: Boot, gap: Gap, at: int) -> bool:
    beat = gap.return_of_broker
    return beat is not None and is_same_process(gap.beat, beat, boot.live[beat.seq] - at)


def client_staleness(eviction: Eviction, poll: int) -> list[float]:
    """What clients that poll so often would have seen of it: one value for each phase of their polls."""
    return [eviction.staleness + (2 * phase + 1) * poll / (2 * PHASES) for phase in range(PHASES)]
