"""Samples of a thousand deaths, compared with sums of uniform waits."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any, Final, Self

from tools.heartbeat_logs.server import write_log
from tools.heartbeat_logs.settings import BEGIN, MINUTE, SECOND, Settings
from tools.heartbeat_logs.truth import truth_lines
from tools.heartbeat_logs.world import Broker, Client, Death, Kind, Process, World

# critical Kolmogorov-Smirnov statistic, times the square root of the sample's size
KS_CRITICAL_AT_0_001: Final = 1.9495
# a message takes up to 2 ms, and a scan 20 µs per removal
SLACK_SECONDS: Final = 0.01


@dataclass(frozen=True)
class Law:
    """A time that is the sum of a constant and of uniform waits of these widths, in seconds."""

    constant: float
    widths: tuple[float, ...]

    @property
    def mean(self) -> float:
        return self.constant + sum(self.widths) / 2

    @property
    def deviation(self) -> float:
        return math.sqrt(sum(width * width for width in self.widths) / 12)

    def cdf(self, x: float) -> float:
        """The cumulative distribution at x: the volume of a cube's corner, by inclusion and exclusion."""
        count = len(self.widths)
        y = min(max(x - self.constant, 0.0), sum(self.widths))
        corners = (chosen for size in range(count + 1) for chosen in combinations(self.widths, size))
        volume = sum((-1) ** len(chosen) * max(y - sum(chosen), 0.0) ** count for chosen in corners)
        return float(volume / (math.factorial(count) * math.prod(self.widths)))

    def check(self, sample: Sequence[float]) -> None:
        """Check range, mean and distribution of a sample.

        Raises:
            AssertionError: the sample does not follow this law.
        """
        low, high = self.constant - SLACK_SECONDS, self.constant + sum(self.widths) + SLACK_SECONDS
        assert low <= min(sample), f"{min(sample)} below {self}"
        assert max(sample) <= high, f"{max(sample)} above {self}"
        error = self.deviation / math.sqrt(len(sample))
        mean = sum(sample) / len(sample)
        assert abs(mean - self.mean) <= 4 * error, f"mean {mean}, expected {self.mean} +- {error}"
        distance = self.distance(sample)
        assert distance < KS_CRITICAL_AT_0_001 / math.sqrt(len(sample)), f"{distance} away from {self}"

    def distance(self, sample: Sequence[float]) -> float:
        """The Kolmogorov-Smirnov statistic of a sample."""
        count = len(sample)
        steps = [(number, self.cdf(value)) for number, value in enumerate(sorted(sample))]
        return max(max(part - number / count, (number + 1) / count - part) for number, part in steps)


@dataclass(frozen=True, eq=False)
class Deaths:
    """A log of many brokers that each die once and have one client, with the truth about them."""

    files: Mapping[str, Sequence[str]]
    paths: Sequence[str]
    # address -> time of death; true wall time in seconds
    died: Mapping[str, float]
    boot_id: str

    @classmethod
    def written(cls, settings: Settings, kind: Kind, count: int, directory: Path) -> Self:
        """Write the log of one server with `count` independent pairs of a broker and a client."""
        world = _world(settings, kind, count)
        removals = write_log(settings, world, 0, directory, lambda _lines: None)
        truth: list[dict[str, Any]] = [json.loads(line) for line in truth_lines(world, removals)]
        paths = sorted(directory.rglob("*.jsonl"))
        files = {str(path): path.read_text(encoding="utf-8").splitlines() for path in paths}
        died = {death["broker_addr"]: death["at_ms"] / 1000 for death in truth}
        return cls(files, list(files), died, truth[0]["removals"][0]["boot_id"])


def settings_for(scan: float, *, heartbeat: float = 30, expiry: float = 120, seed: int = 1) -> Settings:
    """Settings of a server and a fleet with these periods in seconds; clients poll every 30 s."""
    return Settings(
        seed=seed,
        duration=11 * MINUTE,
        nameservers=1,
        heartbeat=round(heartbeat * SECOND),
        expiry=round(expiry * SECOND),
        scan=round(scan * SECOND),
        gzip=False,
    )


def _world(settings: Settings, kind: Kind, count: int) -> World:
    """Each topic is on its own broker and on one broker that never dies, so that a route remains."""
    random = Random(f"laws of {settings.seed}")
    lasting = Process(None, BEGIN, settings.end, None)
    brokers = [_broker(settings, 0, (), lasting)]
    for index in range(1, count + 1):
        at = BEGIN + MINUTE + random.randrange(5 * MINUTE)
        death = Death(index, kind, at, settings.end)
        # each process draws one phase when it starts
        start = BEGIN - random.randrange(settings.heartbeat)
        brokers.append(_broker(settings, index, (index,), Process(f"agent-{index}", start, at, death)))
    brokers[0] = _broker(settings, 0, tuple(range(1, count + 1)), lasting)
    clients = [
        Client(index, 0, f"10.200.0.1:{index}", random.randrange(settings.poll), (index,))
        for index in range(1, count + 1)
    ]
    return World(brokers, clients)


def _broker(settings: Settings, index: int, topics: tuple[int, ...], process: Process) -> Broker:
    addr = f"10.0.{index >> 8}.{index & 255}:10911"
    times = settings.heartbeat, settings.expiry
    return Broker(index, "cluster", f"broker-{index:04d}", 0, addr, *times, topics, (process,), ())
