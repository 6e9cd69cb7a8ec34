"""The cache holds what encoding anew would give, and encodes nothing twice for nothing."""

import json
from typing import Any, NoReturn

import pytest

from namesrv.routeinfo.records import RouteOptions
from namesrv.routeinfo.route_cache import MAX_ZONES, RouteCache
from namesrv.routeinfo.tables import RouteTables
from namesrv_remoting.bodies.dialects import JSON
from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_remoting.codes import SYNC_BROKER_MEMBER_PREFIX
from tests.support.route_builders import registration, tables_of, topic


class CountedCache(RouteCache[bytes]):
    """A cache that counts what it encodes."""

    def __init__(self, tables: RouteTables, *, max_bytes: int = 1_000_000, **options: bool) -> None:
        self.encoded = 0
        self.order_conf: dict[str, str] = {}
        super().__init__(tables, RouteOptions(**options), self.order_conf.get, self._count, max_bytes)

    def _count(self, route: TopicRouteData) -> tuple[bytes, int]:
        self.encoded += 1
        answer = JSON.encode(route)
        return answer, len(answer)

    def ask(self, name: str) -> Any:
        """What the fast lane does; what is in the answer."""
        answer = self.entries.get(name) or self.fill(name)
        return None if answer is None else json.loads(answer)


def broker_names(answer: Any) -> list[str]:
    """Who is in an answer."""
    return [group["brokerName"] for group in answer["brokerDatas"]]


def test_answer_is_encoded_once() -> None:
    """The second question is a look-up; a peer that asks for made-up topics fills nothing."""
    cache = CountedCache(tables_of(registration("b1", 0, "m:1")))

    assert cache.ask("t1") == cache.ask("t1")
    assert 1 == cache.encoded
    assert cache.ask("nothing") is None
    assert cache.fill_zone("nothing", "z") is None
    assert (["t1"], {}) == (list(cache.entries), cache.zones)


def test_topics_with_the_same_queues_share_an_answer() -> None:
    """A thousand topics of one broker cost one encoding and one body."""
    names = [f"t{number}" for number in range(1_000)]
    cache = CountedCache(tables_of(registration("b1", 0, "m:1", *names, topic("other", 4))))

    answers = {id(cache.fill(name)) for name in names}

    assert (1, 1) == (cache.encoded, len(answers))
    assert 4 == cache.ask("other")["queueDatas"][0]["readQueueNums"]
    assert "<RouteCache [1001 topics | 2 bodies | 0 zones]>" == repr(cache)


@pytest.mark.parametrize("option", ["order_message_enable", "support_acting_master"])
def test_answers_that_depend_on_the_topic_are_not_shared(option: str) -> None:
    """Order configuration is by topic, and the brokers' own topic shows no acting master."""
    own = f"{SYNC_BROKER_MEMBER_PREFIX}b1"
    cache = CountedCache(
        tables_of(registration("b1", 1, "s:1", "t1", own, enable_acting_master=True)), **{option: True}
    )
    cache.order_conf[own] = "b1:4"

    first, second = cache.ask("t1"), cache.ask(own)

    assert (option == "order_message_enable") == (first.get("orderTopicConf") != second.get("orderTopicConf"))
    assert (option == "support_acting_master") == (first["brokerDatas"] != second["brokerDatas"])


def test_zone_has_answers_of_its_own() -> None:
    """One per zone and topic, whatever the case of the zone's name, and beside that of everybody."""
    cache = CountedCache(
        tables_of(registration("b1", 0, "m:1", zone_name="z1"), registration("b2", 0, "o:1", zone_name="z2"))
    )

    answers = [cache.fill_zone("t1", zone) for zone in ("z1", "Z1", "z2", "Z2")]

    assert [["b1"], ["b1"], ["b2"], ["b2"]] == [broker_names(json.loads(answer or b"")) for answer in answers]
    assert ["b1", "b2"] == broker_names(cache.ask("t1"))
    assert 3 == cache.encoded


def test_answers_of_zones_count() -> None:
    """They are not shared: the cache is emptied before they take more than it may."""
    names = [f"t{number}" for number in range(100)]
    cache = CountedCache(tables_of(registration("b1", 0, "m:1", *names)), max_bytes=2_000)
    for zone in ("z1", "z2", "z3"):
        for name in names:
            assert cache.fill_zone(name, zone) is not None
            assert sum(len(answer) for answers in cache.zones.values() for answer in answers.values()) <= 2_000
    assert cache.zones


def test_more_topics_than_answers_cost_what_there_are_answers() -> None:
    """Thirty-two zones with an answer each are no reason to look for a hundred thousand topics in each of them."""
    cache = CountedCache(tables_of(registration("b1", 0, "m:1", "t1", "t2")))
    cache.ask("t1")
    cache.fill_zone("t2", "z")

    class Uncountable(frozenset[str]):
        def __iter__(self) -> NoReturn:
            raise AssertionError("a look at every topic")

    cache.invalidate(Uncountable({"t1", "t2", "t3"}))

    assert ({}, {"z": {}}) == (cache.entries, cache.zones)


def test_made_up_zones_are_answered_and_not_remembered() -> None:
    """A hostile peer could name any number."""
    cache = CountedCache(tables_of(registration("b1", 0, "m:1")))
    for number in range(MAX_ZONES + 10):
        assert cache.fill_zone("t1", f"z{number}") is not None

    assert MAX_ZONES == len(cache.zones)

    # one that is known goes on being cached
    cache.fill_zone("t2", "z0")
    assert ["t1", "t2"] == list(cache.zones["z0"])


def test_cache_is_emptied_when_it_holds_too_much() -> None:
    """Only when most topics have queues of their own; it fills again."""
    tables = tables_of(registration("b1", 0, "m:1", *(topic(f"t{number}", number) for number in range(100))))
    cache = CountedCache(tables, max_bytes=2_000)

    for number in range(100):
        assert number == cache.ask(f"t{number}")["queueDatas"][0]["readQueueNums"]
        assert sum(map(len, cache.entries.values())) <= 2_000

    assert 100 == cache.encoded


def test_clear_forgets_everything() -> None:
    """An option may change every answer."""
    cache = CountedCache(tables_of(registration("b1", 0, "m:1", zone_name="z1")))
    entries = cache.entries
    cache.ask("t1")
    cache.fill_zone("t1", "z1")

    cache.clear()

    assert "<RouteCache [0 topics | 0 bodies | 0 zones]>" == repr(cache)
    # the fast lane holds on to the dictionary
    assert entries is cache.entries
