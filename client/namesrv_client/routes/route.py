"""A route, how two of them differ, and what a server answers about routes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from namesrv_remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from namesrv_runtime.clock import Clock

Source = Literal["pull", "watch", "disk", "default"]


@dataclass(frozen=True, slots=True)
class Route:
    """Where the queues of one topic are, how old that knowledge is, and where it comes from.

    `age` is the time since a server last confirmed it. `confirmed_absent_since` (monotonic seconds) is set while a
    server says that the topic does not exist any more; the last route is kept all the same, for the caller to decide.
    """

    topic: str
    data: TopicRouteData
    source: Source
    # monotonic seconds; of the moment in which this was handed out
    confirmed_at: float
    confirmed_absent_since: float | None = None
    clock: Clock | None = field(default=None, repr=False, compare=False)

    @property
    def age(self) -> float:
        """Seconds since a server last confirmed it."""
        return 0.0 if self.clock is None else max(0.0, self.clock.monotonic() - self.confirmed_at)

    @property
    def brokers(self) -> Mapping[str, BrokerData]:
        """The broker groups by name."""
        return {data.broker_name: data for data in self.data.broker_datas}


@dataclass(frozen=True, slots=True)
class RouteChange:
    """How the route of a topic changed; `new` is None when the topic is gone, `old` when it was not known before."""

    topic: str
    old: Route | None
    new: Route | None
    brokers_added: tuple[str, ...] = ()
    brokers_removed: tuple[str, ...] = ()
    # other addresses, cluster or zone
    brokers_changed: tuple[str, ...] = ()
    # by broker name: queues appeared, went, or have other numbers or permissions
    queues_added: tuple[str, ...] = ()
    queues_removed: tuple[str, ...] = ()
    queues_changed: tuple[str, ...] = ()


def difference(topic: str, old: Route | None, new: Route | None) -> RouteChange | None:
    """How two routes of a topic differ; None when they say the same. One that is confirmed absent counts as none."""
    old_data = None if old is None or old.confirmed_absent_since is not None else old.data
    new_data = None if new is None or new.confirmed_absent_since is not None else new.data
    if old_data == new_data:
        return None
    return RouteChange(
        topic,
        old,
        None if new_data is None else new,
        *_sets(_brokers(old_data), _brokers(new_data)),
        *_sets(_queues(old_data), _queues(new_data)),
    )


def _brokers(data: TopicRouteData | None) -> Mapping[str, BrokerData]:
    return {} if data is None else {broker.broker_name: broker for broker in data.broker_datas}


def _queues(data: TopicRouteData | None) -> Mapping[str, QueueData]:
    return {} if data is None else {queues.broker_name: queues for queues in data.queue_datas}


def _sets(before: Mapping[str, object], now: Mapping[str, object]) -> tuple[tuple[str, ...], ...]:
    added = tuple(sorted(now.keys() - before.keys()))
    removed = tuple(sorted(before.keys() - now.keys()))
    changed = tuple(sorted(name for name in before.keys() & now.keys() if before[name] != now[name]))
    return added, removed, changed


def lost_brokers(old: TopicRouteData, new: TopicRouteData | None) -> Sequence[str]:
    """Instances of the old route that the new one lacks, as `name:id`."""
    now = set() if new is None else _instances(new)
    return sorted(_instances(old) - now)


def _instances(data: TopicRouteData) -> set[str]:
    return {f"{group.broker_name}:{broker_id}" for group in data.broker_datas for broker_id in group.broker_addrs}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of one server to one question."""

    # which run of which server: a native one's boot id, or a connection to one that has none
    run: str
    # the server has run for long enough that what it does not know does not exist
    is_warm: bool
    # for long enough, too, that a topic that it does not know and nobody else either does not exist
    can_deny: bool = True
    # all that were asked about
    topics: Sequence[str]
    # what was said of them, None: does not exist; of a conditional question only what changed
    routes: Mapping[str, TopicRouteData | None]
    # as of which of the run's changes; None from a server that does not count them
    revision: int | None = None
    # asked for changes after some revision
    is_conditional: bool = False
    # asked to keep all topics in use fresh, and not because somebody wanted this one
    is_sync: bool = False
