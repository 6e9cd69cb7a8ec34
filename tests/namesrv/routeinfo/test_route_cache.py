"""The route cache: it holds what encoding anew would give, and encodes no route twice."""

import json
from typing import Any

import pytest

from namesrv.routeinfo.route_cache import RESPONSE_BYTES, ResponseMemory, RouteCache
from namesrv.routeinfo.routes import RouteInputs
from namesrv.routeinfo.tables.records import RouteOptions
from namesrv.routeinfo.tables.route_tables import RouteTables
from namesrv_remoting.address_views import AddressRule, AddressView
from namesrv_remoting.bodies.dialects import JSON
from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_remoting.codes import SYNC_BROKER_MEMBER_PREFIX
from namesrv_remoting.zones import ZoneFallback
from tests.support.route_builders import register, registration, tables_of, topic


class CountedCache(RouteCache[bytes]):
    """A cache that counts its encodings, with a memory of its own unless one is given."""

    def __init__(
        self,
        tables: RouteTables,
        *,
        max_bytes: int = 1_000_000,
        view: AddressView | None = None,
        memory: ResponseMemory | None = None,
        options: RouteOptions | None = None,
    ) -> None:
        self.encoded = 0
        self.order_conf: dict[str, str] = {}
        self.tables = tables
        inputs = RouteInputs(tables, options or RouteOptions(), self.order_conf.get, ZoneFallback())
        if memory is None:
            memory = ResponseMemory(tables.topic_queue_table, max_bytes)
        super().__init__(inputs, self._count, memory, view)

    def _count(self, route: TopicRouteData) -> tuple[bytes, int]:
        self.encoded += 1
        response = JSON.encode(route)
        return response, len(response)

    def ask(self, name: str) -> Any:
        """The decoded response that the fast path gives for a topic."""
        row = self.tables.topic_queue_table.get(name)
        response = (row and self.responses.get(row)) or self.find(name)
        return None if response is None else json.loads(response)

    def held(self) -> int:
        """Bytes of all cached responses."""
        return sum(len(response) + RESPONSE_BYTES for response in self.responses.values())


def view_of(host: str) -> AddressView:
    """A view in which all brokers have this host."""
    return AddressView(host, (AddressRule(f"{host}:{{port}}"),))


def broker_names(response: Any) -> list[str]:
    """Names of the brokers in a response."""
    return [group["brokerName"] for group in response["brokerDatas"]]


def test_response_is_encoded_once() -> None:
    """The second request is a look-up, and unknown topics take no room in the cache."""
    cache = CountedCache(tables_of(registration("b1", 0, "m:1")))

    assert cache.ask("t1") == cache.ask("t1")
    assert cache.encoded == 1
    assert cache.ask("unknown") is None
    assert cache.find("unknown", "z") is None
    memory = f"<ResponseMemory [1 responses | {cache.held()} bytes]>"
    assert repr(cache) == f"<RouteCache [no view | 1 responses | {memory}]>"


def test_topics_with_the_same_queues_share_a_response() -> None:
    """A thousand topics of one broker are encoded once and share one body."""
    names = [f"t{number}" for number in range(1_000)]
    cache = CountedCache(tables_of(registration("b1", 0, "m:1", *names, topic("other", 4))))

    responses = {id(cache.find(name)) for name in names}

    assert (cache.encoded, len(responses)) == (1, 1)
    assert cache.ask("other")["queueDatas"][0]["readQueueNums"] == 4
    assert len(cache.memory) == 2


@pytest.mark.parametrize("option", ["order_message_enable", "support_acting_master"])
def test_topics_with_a_response_of_their_own_share_the_others(option: str) -> None:
    """A topic with order configuration, or a group's sync topic, has its own response; other topics share one."""
    own = f"{SYNC_BROKER_MEMBER_PREFIX}b1"
    cache = CountedCache(
        tables_of(registration("b1", 1, "s:1", "t1", own, "t2", enable_acting_master=True)),
        options=RouteOptions(**{option: True}),
    )
    cache.order_conf[own] = "b1:4"

    first, second = cache.ask("t1"), cache.ask(own)

    assert (first.get("orderTopicConf") != second.get("orderTopicConf")) == (option == "order_message_enable")
    assert (option == "support_acting_master") == (first["brokerDatas"] != second["brokerDatas"])
    assert (cache.ask("t2"), cache.encoded) == (first, 2)


def test_responses_are_dropped_with_their_rows() -> None:
    """The counted bytes stay close to the bytes that rows hold, after any number of changed routes."""
    tables = tables_of(registration("b1", 0, "m:1", "t1", "stays"))
    cache = CountedCache(tables)
    for number in range(1, 100):
        register(tables, registration("b1", 0, "m:1", topic("t1", number)))
        assert cache.ask("t1")["queueDatas"][0]["readQueueNums"] == number
        cache.ask("stays")

    assert (len(cache.memory), cache.encoded) == (2, 100)
    assert cache.held() <= int(repr(cache.memory).split()[4]) <= 3 * cache.held()


def test_made_up_zones_share_a_response() -> None:
    """A peer that names many zones without a broker takes one place, and leaves the places of real zones alone."""
    cache = CountedCache(
        tables_of(
            registration("b1", 0, "m:1", zone_name="z1"),
            registration("b2", 1, "s:1", zone_name="z2", enable_acting_master=True),
        )
    )
    made_up = {cache.find("t1", f"invented-{number}") for number in range(100)}
    real = [cache.find("t1", zone) for zone in ("z1", "z2", "Z1", "Z2")]

    # a group without a master is in every response
    assert [broker_names(json.loads(answer or b"")) for answer in (*made_up, *real)] == [
        ["b2"],
        *[["b1", "b2"], ["b2"]] * 2,
    ]
    assert (cache.encoded, len(cache.memory)) == (3, 3)


def test_oldest_responses_are_dropped_at_the_limit() -> None:
    """Where most topics have queues of their own, the oldest responses are dropped and encoded again."""
    tables = tables_of(registration("b1", 0, "m:1", *(topic(f"t{number}", number) for number in range(100))))
    cache = CountedCache(tables, max_bytes=5_000)

    for number in range(100):
        assert cache.ask(f"t{number}")["queueDatas"][0]["readQueueNums"] == number
        assert cache.held() <= 5_000

    assert (cache.encoded, next(reversed(tables.topic_queue_table))) == (100, "t99")
    assert (cache.ask("t99")["queueDatas"][0]["readQueueNums"], cache.encoded) == (99, 100)
    assert (cache.ask("t0")["queueDatas"][0]["readQueueNums"], cache.encoded) == (0, 101)


def test_views_share_the_memory() -> None:
    """Responses of all views count towards one limit, and the oldest responses of any view are dropped."""
    queues = [topic(f"t{number}", number) for number in range(100)]
    tables = tables_of(registration("b1", 0, "m:1", *queues))
    memory = ResponseMemory(tables.topic_queue_table, max_bytes=20_000)
    caches = [CountedCache(tables, memory=memory, view=view) for view in (None, view_of("one"), view_of("two"))]
    for number in range(100):
        for cache, addr in zip(caches, ("m:1", "one:1", "two:1"), strict=True):
            assert cache.ask(f"t{number}")["brokerDatas"][0]["brokerAddrs"] == {"0": addr}
            assert sum(each.held() for each in caches) <= 20_000

    # Each response takes about 800 bytes: the latest eight of each view fit.
    latest = [tables.topic_queue_table[f"t{number}"] for number in range(92, 100)]
    assert [list(cache.responses)[-8:] for cache in caches] == [latest] * 3
    assert sum(cache.encoded for cache in caches) == 300
