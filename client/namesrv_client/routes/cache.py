"""The cache of routes, and the changes that a server's response makes in it. No I/O, no event loop."""

from collections import Counter
from collections.abc import Collection, Container, Iterable
from dataclasses import replace

from namesrv_client.routes.interner import RouteInterner
from namesrv_client.routes.response import RouteResponse
from namesrv_client.routes.route import Route, RouteChange, Source, difference
from namesrv_client.routes.status import RouteStatus
from namesrv_client.routes.sync_point import SyncPoint
from namesrv_remoting.bodies.route import BrokerData, TopicRouteData
from namesrv_runtime.clock import Clock


class BrokerGroups:
    """The broker groups of the known routes, by name; a group is dropped with the last route that has it."""

    def __init__(self) -> None:
        # broker name -> the group as the last new route with this broker had it
        self._groups: dict[str, BrokerData] = {}
        # broker name -> the number of routes with this broker, which is never 0
        self._route_counts: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<BrokerGroups [{', '.join(sorted(self._groups))}]>"

    def get(self, name: str) -> BrokerData | None:
        """A group, as in the newest route that has it."""
        return self._groups.get(name)

    def add(self, route: TopicRouteData) -> None:
        """Count the brokers of a new route."""
        for group in route.broker_datas:
            self._groups[group.broker_name] = group
            self._route_counts[group.broker_name] += 1

    def remove(self, route: TopicRouteData) -> None:
        """Count the brokers of a dropped route no more."""
        for group in route.broker_datas:
            self._route_counts[group.broker_name] -= 1
            if not self._route_counts[group.broker_name]:
                del self._route_counts[group.broker_name], self._groups[group.broker_name]


class KnownRoutes:
    """The known routes by topic.

    A failing server drops no route. A server that is not complete, because it has just started or may have been cut off
    from its brokers, can add brokers to a known route. Such a server removes a broker only from a route that the server
    itself has sent in the same boot, and only if no network failure can lie between: the route arrived over the same
    connection, or the server has been complete on the connection of the response. Otherwise the failure that ended the
    former connection may also have ended the connections of live brokers, which are about to register again.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # topic -> route; a route was last confirmed at its `confirmed_at` or with the sync point, whichever is later
        self._routes: dict[str, Route] = {}
        self._brokers = BrokerGroups()
        self._interner = RouteInterner(lambda: (route.data for route in self._routes.values()))
        self.point = SyncPoint(self._remove_from_point)
        # topics whose last response was not accepted, or that the server refused, and that have to be requested again
        self.to_request_again: set[str] = set()

    def __repr__(self) -> str:
        again = f"{len(self.to_request_again)} to request again"
        return f"<KnownRoutes [{len(self._routes)} topics | {again} | {self.point!r}]>"

    def __len__(self) -> int:
        return len(self._routes)

    def get(self, topic: str) -> Route | None:
        """The known route of a topic."""
        # Read once and first, because other threads get routes while the loop moves the sync point.
        confirmed_at = self.point.confirmed_at
        route = self._routes.get(topic)
        if route is None or confirmed_at <= route.confirmed_at or topic not in self.point.topics:
            return route
        # Written out, because `dataclasses.replace` is slow, and each request for a known route comes here.
        return Route(
            topic,
            route.data,
            route.source,
            confirmed_at,
            route.confirmed_absent_since,
            route.clock,
            route.sender,
        )

    def existing(self) -> list[Route]:
        """All known routes, without topics that a server reports as absent."""
        routes = (self.get(topic) for topic in self._routes)
        return [route for route in routes if route is not None and route.confirmed_absent_since is None]

    def statuses(self, in_use: Container[str]) -> tuple[RouteStatus, ...]:
        """The status of each route, in the order in which they became known; any thread may call this."""
        now = self._clock.monotonic()
        # Another thread may have dropped a topic since its name was copied.
        routes = (self.get(topic) for topic in tuple(self._routes))
        return tuple(self._status(route, now, is_in_use=route.topic in in_use) for route in routes if route is not None)

    def _status(self, route: Route, now: float, *, is_in_use: bool) -> RouteStatus:
        absent_since = route.confirmed_absent_since
        return RouteStatus(
            topic=route.topic,
            source=route.source,
            age_seconds=max(0.0, now - route.confirmed_at),
            revision=self.point.revision if route.topic in self.point.topics else None,
            absent_seconds=None if absent_since is None else now - absent_since,
            is_in_use=is_in_use,
        )

    def broker(self, name: str) -> BrokerData | None:
        """A broker group, as in the newest route that has it."""
        return self._brokers.get(name)

    def topics_of(self, brokers: Collection[str]) -> set[str]:
        """Topics whose route has one of the brokers. Searches all routes."""
        return {topic for topic, route in self._routes.items() if not route.brokers.keys().isdisjoint(brokers)}

    def restore(self, routes: Iterable[Route]) -> None:
        """Add routes from disk for unknown topics."""
        for route in routes:
            if route.topic not in self._routes:
                self._put(replace(route, data=self._interner.shared(route.data)))

    def forget(self, topic: str) -> None:
        """Drop a topic that is not used any more."""
        self.point.topics.discard(topic)
        self.to_request_again.discard(topic)
        route = self._routes.pop(topic, None)
        if route is not None:
            self._brokers.remove(route.data)

    def apply(self, response: RouteResponse, source: Source, *, is_sync: bool) -> list[RouteChange]:
        """Apply a server's response, and return the changes of routes.

        `is_sync` is True for a request that keeps known routes fresh (a poll, a watch, a refresh after a failed send):
        such a response moves the sync point to its server. The response to the first request for a topic does not,
        because the other topics would have to be requested in full again.
        """
        if response.is_conditional and response.boot_id != self.point.boot_id:
            # Changes since a revision of another server cannot be applied to these routes.
            return []
        if is_sync or self.point.boot_id is None:
            self._follow_sender(response)
        now = self._clock.monotonic()
        changes, rejected = [], []
        for topic, data in response.routes.items():
            old = self.get(topic)
            if old is not None and not _is_accepted(old, data, response):
                rejected.append(topic)
                continue
            self.to_request_again.discard(topic)
            if data is not None:
                sender = response.boot_id, response.connection_number
                new = Route(topic, self._interner.shared(data), source, now, None, self._clock, sender)
            elif old is not None:
                # The last route stays, marked as absent.
                since = now if old.confirmed_absent_since is None else old.confirmed_absent_since
                new = replace(old, confirmed_at=now, confirmed_absent_since=since)
            else:
                # Neither this client nor the server knows the topic.
                continue
            self._put(new)
            change = difference(topic, old, new)
            if change is not None:
                changes.append(change)
        self._move_point(response, rejected, now)
        return changes

    def _follow_sender(self, response: RouteResponse) -> None:
        """Let the sync point follow the server that sent the response, unless that server has no revisions."""
        if response.revision is not None and response.boot_id != self.point.boot_id:
            self._remove_from_point(tuple(self.point.topics))
            self.point.boot_id = response.boot_id

    def _move_point(self, response: RouteResponse, rejected: Collection[str], now: float) -> None:
        """Move the sync point; rejected topics have to be requested in full until a response is accepted."""
        if response.boot_id == self.point.boot_id:
            self._remove_from_point(rejected)
        else:
            # The routes in the response are of another server, and not of the sync point's revision.
            self._remove_from_point(response.routes)
        covers_all = self.point.advance(response, now)
        # `advance` has added all topics of a full request, the rejected ones, too.
        self.point.topics.difference_update(rejected)
        self.to_request_again.update(rejected)
        if not covers_all:
            # The sync point keeps its time of confirmation, which is that of all its topics.
            for topic in self.point.topics.intersection(response.topics):
                if topic in self._routes:
                    self._routes[topic] = replace(self._routes[topic], confirmed_at=now)

    def _remove_from_point(self, topics: Iterable[str]) -> None:
        """Remove topics from the sync point, and keep their time of confirmation with their routes."""
        for topic in topics:
            route = self.get(topic)
            if route is not None:
                self._routes[topic] = route
            self.point.topics.discard(topic)

    def _put(self, route: Route) -> None:
        """Store a route, and keep the broker groups up to date."""
        old = self._routes.get(route.topic)
        self._routes[route.topic] = route
        if old is not None and old.data is route.data:
            return
        self._brokers.add(route.data)
        if old is not None:
            self._brokers.remove(old.data)


def _is_accepted(old: Route, data: TopicRouteData | None, response: RouteResponse) -> bool:
    """True if a response may replace the old route.

    The response must be of a server that is complete; or remove no broker from the old route; or be of the same boot id
    as the old route, and either have arrived over the same connection or over one on which the server was complete.
    """
    boot_id, connection_number = old.sender
    is_unbroken = response.has_been_complete or connection_number == response.connection_number
    if response.is_complete or (boot_id == response.boot_id and is_unbroken):
        return True
    return data is not None and _instances(old.data) <= _instances(data)


def _instances(data: TopicRouteData) -> set[tuple[str, int]]:
    """The brokers of a route, each as its group's name with its id."""
    return {(group.broker_name, broker_id) for group in data.broker_datas for broker_id in group.broker_addrs}
