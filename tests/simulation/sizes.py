"""The size of a run: its machines, their times, and how many faults hit them."""

import random
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel

from namesrv.settings.limits import Limits
from namesrv.settings.model import Settings
from namesrv_broker_agent import AgentSettings
from namesrv_client import ClientSettings

# (broker name, id, topics)
Place = tuple[str, int, tuple[str, ...]]

TOPICS: Final = ("orders", "bills", "parcels", "returns")
BROKERS: Final[tuple[Place, ...]] = (
    ("broker-a", 0, ("orders", "bills")),
    ("broker-a", 1, ("orders", "bills")),
    ("broker-b", 0, ("orders", "parcels")),
    ("broker-c", 0, ("orders", "bills", "returns")),
    ("broker-d", 0, ("parcels",)),
)


@dataclass(frozen=True, slots=True)
class Times:
    """Intervals and timeouts of a run, in seconds."""

    heartbeat: float
    expiry: float
    scan: float
    poll: float
    warm_up: float
    response: float
    # Connect timeouts of an agent and a client.
    connect: float
    client_connect: float
    drain: float
    # Time in which a response must be read.
    unread: float
    # Factor for the times of faults and of the operator's puts.
    pace: float
    # Time in which all processes start, and in which all stop.
    start: float = 2.0
    # Interval of the checks at the end of a run.
    look: float = 0.5


# A tenth of the defaults, so that a run takes a tenth of the time.
SHORT: Final = Times(
    heartbeat=3.0,
    expiry=12.0,
    scan=1.0,
    poll=3.0,
    warm_up=4.5,
    response=1.0,
    connect=0.5,
    client_connect=0.5,
    drain=0.5,
    unread=3.0,
    pace=1.0,
)

# Times of small runs.
SHORTEST: Final = Times(
    heartbeat=1.0,
    expiry=4.0,
    scan=1.0,
    poll=1.0,
    warm_up=1.5,
    response=0.5,
    connect=0.25,
    client_connect=0.25,
    drain=0.25,
    unread=1.5,
    pace=0.4,
    start=1.0,
    look=0.25,
)


def _default(settings: type[BaseModel], name: str) -> float:
    return float(settings.model_fields[name].default)


# Times of the default settings.
DEFAULTS: Final = Times(
    heartbeat=_default(AgentSettings, "heartbeat_seconds"),
    expiry=_default(Settings, "broker_expiry_seconds"),
    scan=_default(Settings, "scan_interval_seconds"),
    poll=_default(ClientSettings, "poll_seconds"),
    warm_up=_default(Settings, "wait_for_service_seconds"),
    response=_default(AgentSettings, "response_timeout_seconds"),
    connect=_default(AgentSettings, "connect_timeout_seconds"),
    client_connect=_default(ClientSettings, "connect_timeout_seconds"),
    drain=_default(Settings, "drain_seconds"),
    unread=Limits.of(Settings()).server.whole_frame_seconds,
    pace=10.0,
)


@dataclass(frozen=True, slots=True)
class Size:
    """The times, the machines (beside the operator's) and the number of faults of a run."""

    times: Times
    servers: tuple[str, ...]
    brokers: tuple[Place, ...]
    clients: tuple[str, ...]
    # True if the operator puts keys into the KV configuration
    puts_keys: bool
    most_faults: int

    @property
    def agents(self) -> tuple[str, ...]:
        """The names of the brokers' machines."""
        return tuple(f"{name}-{number}" for name, number, _ in self.brokers)

    @property
    def topics(self) -> list[str]:
        """The topics of the brokers."""
        return [topic for topic in TOPICS if any(topic in topics for _, _, topics in self.brokers)]


def _numbered(name: str, count: int) -> tuple[str, ...]:
    return tuple(f"{name}-{number}" for number in range(1, count + 1))


LARGE: Final = Size(SHORT, _numbered("ns", 3), BROKERS, _numbered("client", 5), puts_keys=True, most_faults=8)


def small(chosen: random.Random) -> Size:
    """Draw the size of a small run."""
    brokers = _one_or_two_groups(chosen)
    return Size(
        SHORTEST,
        _numbered("ns", chosen.choice([1, 2])),
        brokers,
        _numbered("client", chosen.choice([0, 1, 2])),
        puts_keys=chosen.random() < 0.5,
        most_faults=3,
    )


def only_registrations(chosen: random.Random) -> Size:
    """Draw the brokers of a run with a single server and without clients."""
    return Size(SHORTEST, _numbered("ns", 1), _one_or_two_groups(chosen), (), puts_keys=False, most_faults=3)


def _one_or_two_groups(chosen: random.Random) -> tuple[Place, ...]:
    names = chosen.sample(sorted({name for name, _, _ in BROKERS}), chosen.choice([1, 2]))
    return tuple(place for place in BROKERS if place[0] in names)
