"""Brokers and clients of the fleet: the times at which processes start and die, and the kinds of deaths.

This is the truth behind the logs, drawn from the seed before any server is simulated.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final

from tools.heartbeat_logs.settings import BEGIN, DAY, HEARTBEAT, SECOND, Settings

# Brokers per group; id 0 is the master.
_MEMBERS: Final = 2
_CLUSTERS: Final = 2
# Weights of crashes, silences and unregistrations.
_WEIGHTS: Final = (4.0, 3.0, 2.0)


class Kind(StrEnum):
    """The kind of a broker's death."""

    # The process ends, and its connections close.
    CRASH = "crash"
    # Power loss, or a partition until the process ends: connections stay open.
    SILENCE = "silence"
    # The broker unregisters.
    UNREGISTER = "unregister"
    # A partition that heals: the same process continues.
    FALSE_SILENCE = "false_silence"


@dataclass(frozen=True, slots=True)
class Death:
    """The end of a broker's heartbeats."""

    number: int
    kind: Kind
    at: int
    # Time at which the partition heals, or the next process starts.
    back: int


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a broker; it sends a heartbeat at its start and after every interval."""

    agent_id: str | None
    start: int
    end: int
    # None: the process is alive at the end of the log.
    death: Death | None


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker address, with all its processes."""

    index: int
    cluster: str
    name: str
    broker_id: int
    addr: str
    period: int
    expiry: int
    topics: tuple[int, ...]
    processes: tuple[Process, ...]
    partitions: tuple[Death, ...]


@dataclass(frozen=True, slots=True)
class Client:
    """One client that polls its topics at one server."""

    index: int
    nameserver: int
    address: str
    # Time of the first poll after the start of a connection; further polls follow at each interval.
    phase: int
    topics: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class World:
    """All brokers and clients; topics are numbers."""

    brokers: Sequence[Broker]
    clients: Sequence[Client]

    def deaths(self) -> list[tuple[Broker, Death]]:
        """All deaths, sorted by number."""
        found = [(broker, process.death) for broker in self.brokers for process in broker.processes if process.death]
        found += [(broker, partition) for broker in self.brokers for partition in broker.partitions]
        return sorted(found, key=lambda pair: pair[1].number)


def drawn(settings: Settings) -> World:
    """The world of a seed."""
    random = Random(f"world of {settings.seed}")
    groups = -(-settings.brokers // _MEMBERS)
    brokers = []
    first_death = 0
    for index in range(settings.brokers):
        broker = _broker(settings, random, index, groups, first_death)
        first_death += len(broker.partitions) + sum(process.death is not None for process in broker.processes)
        brokers.append(broker)
    return World(brokers, [_client(settings, random, index, groups) for index in range(settings.clients)])


def _broker(settings: Settings, random: Random, index: int, groups: int, first_death: int) -> Broker:
    group, broker_id = divmod(index, _MEMBERS)
    is_native = random.random() < settings.native
    processes, partitions = _history(settings, random, index, is_native=is_native, first_death=first_death)
    return Broker(
        index=index,
        cluster=f"cluster-{group % _CLUSTERS}",
        name=f"broker-{group:04d}",
        broker_id=broker_id,
        addr=f"10.{index >> 16}.{index >> 8 & 255}.{index & 255}:10911",
        period=settings.chatty_heartbeat if index == 0 else HEARTBEAT,
        expiry=settings.expiry,
        # Each topic is on two groups, so that one death does not remove it.
        topics=tuple(sorted({group, (group + 1) % groups})),
        processes=tuple(processes),
        partitions=tuple(partitions),
    )


def _history(
    settings: Settings, random: Random, index: int, *, is_native: bool, first_death: int
) -> tuple[list[Process], list[Death]]:
    """The processes of a broker, one after the other until the end of the log."""
    processes: list[Process] = []
    partitions: list[Death] = []
    period = settings.chatty_heartbeat if index == 0 else HEARTBEAT
    # The first process started before the log, at a random phase.
    start = BEGIN - random.randrange(period)
    for kind, at, back in _ends(settings, random, start):
        agent_id = f"agent-{index}-{len(processes)}" if is_native else None
        number = first_death + len(partitions) + sum(process.death is not None for process in processes)
        death = Death(number, kind, at, back)
        if kind is Kind.FALSE_SILENCE:
            partitions.append(death)
            continue
        processes.append(Process(agent_id, start, at, death))
        start = death.back
        if start >= settings.end:
            return processes, partitions
    agent_id = f"agent-{index}-{len(processes)}" if is_native else None
    return [*processes, Process(agent_id, start, settings.end, None)], partitions


def _ends(settings: Settings, random: Random, now: int) -> Iterator[tuple[Kind, int, int]]:
    """The deaths of one broker: kind, time, and time of its return."""
    kinds = list(Kind)
    weights = (*_WEIGHTS, settings.false_silence)
    while True:
        life = random.expovariate(settings.deaths) * DAY if settings.deaths else settings.duration
        at = max(now, BEGIN) + HEARTBEAT + round(life)
        if at >= settings.end:
            return
        kind = random.choices(kinds, weights)[0]
        now = at + round(_away(settings, random, kind))
        yield kind, at, now


def _away(settings: Settings, random: Random, kind: Kind) -> float:
    if kind is Kind.FALSE_SILENCE:
        # Some outages end before a server notices them.
        return random.uniform(0.5, 2) * settings.expiry
    if kind is Kind.SILENCE:
        return random.uniform(1.2, 4) * settings.expiry
    return random.uniform(5 * SECOND, 2 * settings.expiry)


def _client(settings: Settings, random: Random, index: int, groups: int) -> Client:
    return Client(
        index=index,
        nameserver=index % settings.nameservers,
        address=f"10.200.{index >> 8}.{index & 255}:{40_000 + index % 20_000}",
        phase=random.randrange(settings.poll),
        topics=(index // settings.nameservers % groups,),
    )
