"""The cache holds what encoding anew would give, and encodes nothing twice for nothing."""

import json
from typing import Any

import pytest

from namesrv.routeinfo.records import RouteOptions
from namesrv.routeinfo.route_cache import ANSWER_BYTES, MAX_ZONES, RouteCache
from namesrv.routeinfo.tables import RouteTables
from namesrv_remoting.bodies.dialects import JSON
from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_remoting.bodies.topic import TopicQueueMappingInfo
from namesrv_remoting.codes import SYNC_BROKER_MEMBER_PREFIX
from tests.support.route_builders import body, register, registration, tables_of, topic


class CountedCache(RouteCache[bytes]):
    """A cache that counts what it encodes."""

    def __init__(self, tables: RouteTables, *, max_bytes: int = 1_000_000, **options: bool) -> None:
        self.encoded = 0
        self.order_conf: dict[str, str] = {}
        super().__init__(tables, RouteOptions(**options), self.order_conf.get, self._count, "json", max_bytes)

    def _count(self, route: TopicRouteData) -> tuple[bytes, int]:
        self.encoded += 1
        response = JSON.encode(route)
        return response, len(response)

    def ask(self, name: str) -> Any:
        """What the fast lane does; what is in the answer."""
        row = self.tables.topic_queue_table.get(name)
        response = (row and row.json) or self.find(name)
        return None if response is None else json.loads(response)

    def held(self) -> int:
        """Bytes of all answers that there are."""
        responses = [row.json or b"" for row in set(self.tables.topic_queue_table.values())]
        return sum(len(response) + ANSWER_BYTES for response in (*filter(None, responses), *self._others.values()))


def broker_names(response: Any) -> list[str]:
    """Who is in an answer."""
    return [group["brokerName"] for group in response["brokerDatas"]]


def test_answer_is_encoded_once() -> None:
    """The second question is a look-up; a peer that asks for made-up topics fills nothing."""
    cache = CountedCache(tables_of(registration("b1", 0, "m:1")))

    assert cache.ask("t1") == cache.ask("t1")
    assert cache.encoded == 1
    assert cache.ask("nothing") is None
    assert cache.find_in_zone("nothing", "z") is None
    assert f"<RouteCache [1 answers | {cache.held()} bytes | 0 zones]>" == repr(cache)


def test_topics_with_the_same_queues_share_an_answer() -> None:
    """A thousand topics of one broker cost one encoding and one body."""
    names = [f"t{number}" for number in range(1_000)]
    cache = CountedCache(tables_of(registration("b1", 0, "m:1", *names, topic("other", 4))))

    responses = {id(cache.find(name)) for name in names}

    assert (cache.encoded, len(responses)) == (1, 1)
    assert cache.ask("other")["queueDatas"][0]["readQueueNums"] == 4
    assert len(cache) == 2


@pytest.mark.parametrize("option", ["order_message_enable", "support_acting_master"])
def test_answers_that_depend_on_the_topic_are_shared_by_those_alike(option: str) -> None:
    """Order configuration is by topic, and the brokers' own topic shows no acting master; other topics are alike."""
    own = f"{SYNC_BROKER_MEMBER_PREFIX}b1"
    cache = CountedCache(
        tables_of(registration("b1", 1, "s:1", "t1", own, "t2", enable_acting_master=True)), **{option: True}
    )
    cache.order_conf[own] = "b1:4"

    first, second = cache.ask("t1"), cache.ask(own)

    assert (option == "order_message_enable") == (first.get("orderTopicConf") != second.get("orderTopicConf"))
    assert (option == "support_acting_master") == (first["brokerDatas"] != second["brokerDatas"])
    assert (first, 2) == (cache.ask("t2"), cache.encoded)


def test_zone_has_answers_of_its_own() -> None:
    """One per zone and topic, whatever the case of the zone's name, and beside that of everybody."""
    cache = CountedCache(
        tables_of(registration("b1", 0, "m:1", zone_name="z1"), registration("b2", 0, "o:1", zone_name="z2"))
    )

    responses = [cache.find_in_zone("t1", zone) for zone in ("z1", "Z1", "z2", "Z2")]

    assert [broker_names(json.loads(response or b"")) for response in responses] == [["b1"], ["b1"], ["b2"], ["b2"]]
    assert broker_names(cache.ask("t1")) == ["b1", "b2"]
    assert cache.encoded == 3


def test_answers_of_zones_count() -> None:
    """The oldest are forgotten before they take more than they may."""
    queues = [topic(f"t{number}", number) for number in range(100)]
    cache = CountedCache(tables_of(registration("b1", 0, "m:1", *queues)), max_bytes=5_000)
    for zone in ("z1", "z2", "z3"):
        for number in range(100):
            assert cache.find_in_zone(f"t{number}", zone) is not None
            assert cache.held() <= 5_000
    assert len(cache) > 5


def test_static_mappings_are_in_the_answer_of_their_topic_alone() -> None:
    """Topics with the same queues share an answer, but not with one that has mappings, whoever is asked for first."""
    cache = CountedCache(RouteTables())
    for mappings, expected in (({}, [False, False]), ({"mapped": TopicQueueMappingInfo(epoch=1)}, [False, True])):
        register(cache.tables, registration("b1", 0, "m:1", body=body("plain", "mapped", mappings=mappings)))
        assert expected == ["topicQueueMappingByBroker" in cache.ask(name) for name in ("plain", "mapped")]


def test_answers_go_with_their_rows() -> None:
    """However often routes change, not much more is counted than what rows hold."""
    tables = tables_of(registration("b1", 0, "m:1", "t1", "stays"))
    cache = CountedCache(tables)
    for number in range(1, 100):
        register(tables, registration("b1", 0, "m:1", topic("t1", number)))
        assert number == cache.ask("t1")["queueDatas"][0]["readQueueNums"]
        cache.ask("stays")

    assert (len(cache), cache.encoded) == (2, 100)
    assert cache.held() <= int(repr(cache).split()[4]) <= 3 * cache.held()


def test_made_up_zones_are_answered_and_not_remembered() -> None:
    """A hostile peer could name any number."""
    cache = CountedCache(tables_of(registration("b1", 0, "m:1")))
    for number in range(MAX_ZONES + 10):
        assert cache.find_in_zone("t1", f"z{number}") is not None

    assert len(cache) == MAX_ZONES

    # one that is known goes on being cached
    responses = [cache.find_in_zone("t1", "z0") for _ in range(2)]
    assert (cache.encoded, len(set(map(id, responses)))) == (MAX_ZONES + 10, 1)


def test_oldest_answers_are_forgotten_when_there_are_too_many() -> None:
    """Only when most topics have queues of their own; they are made again."""
    tables = tables_of(registration("b1", 0, "m:1", *(topic(f"t{number}", number) for number in range(100))))
    cache = CountedCache(tables, max_bytes=5_000)

    for number in range(100):
        assert number == cache.ask(f"t{number}")["queueDatas"][0]["readQueueNums"]
        assert cache.held() <= 5_000

    assert (cache.encoded, next(reversed(tables.topic_queue_table))) == (100, "t99")
    assert (cache.ask("t99")["queueDatas"][0]["readQueueNums"], cache.encoded) == (99, 100)
    assert (cache.ask("t0")["queueDatas"][0]["readQueueNums"], cache.encoded) == (0, 101)


def test_clear_forgets_everything() -> None:
    """An option may change every answer."""
    cache = CountedCache(tables_of(registration("b1", 0, "m:1", zone_name="z1")))
    cache.ask("t1")
    cache.find_in_zone("t1", "z1")

    cache.clear()

    assert (repr(cache), cache.held()) == ("<RouteCache [0 answers | 0 bytes | 0 zones]>", 0)
