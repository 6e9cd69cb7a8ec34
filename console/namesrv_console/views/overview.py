"""The overview: what each server knows, whether all agree, who was heard longest ago, what happened last."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from namesrv_console.state import BrokerKey, BrokerSeen, Cluster, ServerView
from namesrv_remoting.bodies.extensions import Event

_SHOWN_DIFFERENCES: Final = 12
_SHOWN_BROKERS: Final = 20
_SHOWN_EVENTS: Final = 30


@dataclass(frozen=True, slots=True)
class Missing:
    """Something that some servers have and others lack."""

    kind: str
    name: str
    lacking: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Whether the servers that answer have the same brokers and topics."""

    compared: tuple[str, ...]
    missing: Sequence[Missing]

    @property
    def shown(self) -> Sequence[Missing]:
        """The first few."""
        return self.missing[:_SHOWN_DIFFERENCES]


def agreement(cluster: Cluster) -> Agreement:
    """Compare the servers that answer and know their brokers; brokers first."""
    views = [view for view in cluster.servers if view.state in ("ready", "answers")]
    if len(views) < 2:  # noqa: PLR2004 - two make a comparison
        return Agreement(tuple(view.address for view in views), ())
    brokers = {view.address: {_name(key) for key in view.brokers} for view in views}
    topics = {view.address: view.topics for view in views}
    missing = [*_missing("broker", brokers), *_missing("topic", topics)]
    return Agreement(tuple(brokers), missing)


def _missing(kind: str, names: Mapping[str, set[str] | frozenset[str]]) -> list[Missing]:
    everywhere = frozenset.intersection(*map(frozenset, names.values()))
    somewhere = frozenset[str]().union(*names.values())
    return [
        Missing(kind, name, tuple(server for server, has in names.items() if name not in has))
        for name in sorted(somewhere - everywhere)
    ]


def _name(key: BrokerKey) -> str:
    return f"{key.cluster}/{key.broker_name}/{key.broker_id}"


def oldest_brokers(cluster: Cluster) -> list[tuple[ServerView, BrokerKey, BrokerSeen]]:
    """The brokers that a server that answers heard longest ago, on each server."""
    found = [
        (view, key, seen)
        for view in cluster.servers
        if view.is_reachable
        for key, seen in view.brokers.items()
        if seen.heard_at is not None
    ]
    found.sort(key=lambda it: (it[2].heard_at or 0.0, it[1], it[0].address))
    return found[:_SHOWN_BROKERS]


def last_events(cluster: Cluster, most: int = _SHOWN_EVENTS) -> list[tuple[ServerView, Event]]:
    """What happened last on any of the servers, newest first."""
    found = [(view, event) for view in cluster.servers for event in view.events[-most:]]
    found.sort(key=lambda it: (it[1].ts_ms or 0, it[1].seq), reverse=True)
    return found[:most]
