"""Which routes does this client know, and what does an answer do to them? No I/O, no loop."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from namesrv_client.route import Route, RouteChange, Source, difference, lost_brokers, normalized
from namesrv_remoting.aio.clock import Clock
from namesrv_remoting.bodies.route import BrokerData, TopicRouteData


class RouteCache:
    """Topic to route. Nothing is ever dropped because a server failed, and nothing shrinks on a young server's word."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._routes: dict[str, Route] = {}

    def __repr__(self) -> str:
        return f"<RouteCache [{len(self._routes)} topics]>"

    def __len__(self) -> int:
        return len(self._routes)

    def get(self, topic: str) -> Route | None:
        """What is known of a topic."""
        return self._routes.get(topic)

    def all(self) -> Mapping[str, Route]:
        """Everything, as it is now."""
        return dict(self._routes)

    def restore(self, routes: Iterable[Route]) -> None:
        """Take routes from disk for topics that are not known."""
        for route in routes:
            self._routes.setdefault(route.topic, route)

    def forget(self, topic: str) -> None:
        """Drop a topic that nobody uses any more."""
        self._routes.pop(topic, None)

    def answered(self, topic: str, data: TopicRouteData | None, source: Source, *, is_warm: bool) -> RouteChange | None:
        """Take in what a server says of a topic; how it differs from before, None if it does not.

        A server whose brokers may not all be back yet (`is_warm` false) can add to a known route, and can neither take
        an instance out of it nor say that the topic is gone: the old route stays, no older and no younger.
        """
        old = self._routes.get(topic)
        now = self._clock.monotonic()
        if data is None:
            if old is None or not is_warm:
                return None
            absent = old.confirmed_absent_since
            new = replace(old, confirmed_at=now, confirmed_absent_since=now if absent is None else absent)
            self._routes[topic] = new
            return difference(topic, old, new)
        data = normalized(data)
        if old is not None and not is_warm and lost_brokers(old.data, data):
            return None
        new = Route(topic, data, source, now, None, self._clock)
        self._routes[topic] = new
        return difference(topic, old, new)

    def confirmed(self, topics: Iterable[str]) -> None:
        """A server has said that these did not change."""
        now = self._clock.monotonic()
        for topic in topics:
            known = self._routes.get(topic)
            if known is not None:
                self._routes[topic] = replace(known, confirmed_at=now)

    def broker(self, name: str) -> BrokerData | None:
        """A broker group, from the youngest route that has it."""
        found: tuple[float, BrokerData] | None = None
        for route in self._routes.values():
            for data in route.data.broker_datas:
                if data.broker_name == name and (found is None or route.confirmed_at > found[0]):
                    found = (route.confirmed_at, data)
        return None if found is None else found[1]

    def topics_of_broker(self, name: str) -> list[str]:
        """Topics whose route has the broker."""
        return [
            topic
            for topic, route in self._routes.items()
            if any(data.broker_name == name for data in route.data.broker_datas)
        ]
