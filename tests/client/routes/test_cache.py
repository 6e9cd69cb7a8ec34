"""What an answer does to the routes that a client knows, and what may be asked of which server next."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from namesrv_client import Route, RouteChange
from namesrv_client.routes.cache import Answer, RouteCache, RouteInterner
from namesrv_remoting.bodies.route import BrokerData, TopicRouteData
from tests.support.fake_clock import FakeClock
from tests.support.route_clients import group, queues, topic_route

A, AB, B = topic_route("broker-a"), topic_route("broker-a", "broker-b"), topic_route("broker-b")
SLAVE = TopicRouteData([group("broker-a", 0, 1)], [])


class Scene:
    """A cache, and servers that speak to it."""

    def __init__(self) -> None:
        self.clock = FakeClock(monotonic=100.0)
        self.cache = RouteCache(self.clock)

    def told(
        self,
        routes: Mapping[str, TopicRouteData | None],
        *,
        run: str = "run-1",
        warm: bool = True,
        revision: int | None = None,
        unchanged: tuple[str, ...] = (),
        conditional: bool = False,
    ) -> list[RouteChange]:
        """A server says something; what changed."""
        answer = Answer(
            run=run,
            is_warm=warm,
            topics=(*routes, *unchanged),
            routes=routes,
            revision=revision,
            is_conditional=conditional,
        )
        return self.cache.apply(answer, "pull", is_sync=True)

    def on_disk(self, topic: str, data: TopicRouteData) -> None:
        """A route of the process before, confirmed a minute ago."""
        self.cache.restore([Route(topic, data, "disk", self.clock.monotonic() - 60.0, None, self.clock)])

    def brokers(self, topic: str = "t") -> list[str] | None:
        """The brokers of a topic, None if nothing is known of it."""
        known = self.cache.get(topic)
        return None if known is None else list(known.brokers)

    def absent_since(self, topic: str = "t") -> float | None:
        """Since when the topic is confirmed to be gone."""
        known = self.cache.get(topic)
        assert known is not None
        return known.confirmed_absent_since

    def ages(self, *topics: str) -> list[float]:
        """How long ago each was confirmed; infinity if nothing is known of it."""
        found = (self.cache.get(topic) for topic in topics)
        return [float("inf") if route is None else route.age for route in found]


@pytest.fixture
def scene() -> Scene:
    """At 100 seconds, with nothing known."""
    return Scene()


def test_a_route_is_known_from_when_it_was_told(scene: Scene) -> None:
    """With its age and its source; one that was handed out does not grow younger when it is confirmed."""
    [change] = scene.told({"t": A}, revision=7)
    held = scene.cache.get("t")
    scene.clock.stall(5.0)
    assert [] == scene.told({}, revision=7, unchanged=("t",), conditional=True)

    assert held is not None
    assert (5.0, "pull", None) == (held.age, held.source, held.confirmed_absent_since)
    assert [0.0, float("inf")] == scene.ages("t", "u")
    assert ("broker-a",) == change.brokers_added
    assert "<RouteCache [1 topics | 0 doubted | <SyncPoint [run-1 | 7 | 1 topics]>]>" == repr(scene.cache)


@pytest.mark.parametrize(
    ("old", "new", "is_believed"),
    [(AB, A, False), (A, None, False), (SLAVE, A, False), (A, AB, True), (A, SLAVE, True), (A, A, True)],
)
def test_a_young_server_takes_nothing_away(
    scene: Scene, old: TopicRouteData, new: TopicRouteData | None, *, is_believed: bool
) -> None:
    """An instance less is not believed before it is warm, and the old route gets no younger; more are good news."""
    for source in ("server", "disk"):
        topic = f"from {source}"
        if source == "disk":
            # after a power cut of the whole house, clients and servers start together
            scene.on_disk(topic, old)
        else:
            scene.told({topic: old})
        scene.clock.stall(10.0)
        [age] = scene.ages(topic)

        changes = scene.told({topic: new}, run="run-2", warm=False)

        assert is_believed == (topic not in scene.cache.doubted) == (scene.ages(topic) == [0.0])
        assert bool(changes) == (is_believed and old is not new)
        assert is_believed or (scene.ages(topic), scene.absent_since(topic)) == ([age], None)
        scene.told({topic: new}, run="run-2")
        assert (set(), [0.0]) == (scene.cache.doubted, scene.ages(topic))
        assert (scene.absent_since(topic) is not None) == (new is None)


def test_a_young_server_can_take_back_what_it_said_itself(scene: Scene) -> None:
    """It knew the broker in this very run: now it is gone, not still on its way."""
    scene.told({"t": AB}, warm=False)

    [change] = scene.told({"t": A}, warm=False)
    assert ("broker-b",) == change.brokers_removed

    scene.told({"t": None}, warm=False)
    assert 100.0 == scene.absent_since()


TOPICS = st.lists(st.sampled_from("tuv"), min_size=1, unique=True)


class Syncing(RuleBasedStateMachine):
    """A server that changes and restarts, answers in any order: a poll corrects all, a young one takes nothing away."""

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene()
        self.cache = self.scene.cache
        self.runs = self.revision = 0
        # topic -> its route, and as of which revision
        self.told: dict[str, tuple[TopicRouteData | None, int]] = {}
        self.is_warm = True
        # with whether it was a poll
        self.on_their_way: list[tuple[Answer, bool]] = []

    @property
    def run(self) -> str:
        """Which one it is now."""
        return f"run-{self.runs}"

    @rule(topics=TOPICS, route=st.sampled_from([A, AB, B, None]))
    def change(self, topics: list[str], route: TopicRouteData | None) -> None:
        """Brokers come and go."""
        self.revision += 1
        self.told |= dict.fromkeys(topics, (route, self.revision))

    @rule()
    def restart(self) -> None:
        """It knows no broker any more, and may be another server."""
        self.runs, self.revision, self.told, self.is_warm = self.runs + 1, 0, {}, False

    @rule()
    def warm_up(self) -> None:
        """All brokers have had time to come."""
        self.is_warm = True

    @rule(topics=TOPICS)
    def ask(self, topics: list[str]) -> None:
        """Somebody wants to know of some topics."""
        self.answer(topics, None, is_sync=False)

    @rule(topics=TOPICS)
    def poll(self, topics: list[str]) -> None:
        """What has changed of the topics that are known there, and all about the others."""
        known, others = self.cache.point.known(self.run, topics)
        if known:
            self.answer(known, self.cache.point.revision, is_sync=True)
        if others:
            self.answer(others, None, is_sync=True)

    def answer(self, topics: list[str], since: int | None, *, is_sync: bool) -> None:
        """It says what it knows now; that may arrive much later."""
        found = {topic: self.told.get(topic, (None, 0)) for topic in topics}
        answer = Answer(
            run=self.run,
            is_warm=self.is_warm,
            topics=topics,
            routes={topic: route for topic, (route, at) in found.items() if since is None or at > since},
            revision=self.revision,
            is_conditional=since is not None,
        )
        self.on_their_way.append((answer, is_sync))

    @precondition(lambda self: self.on_their_way)
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        """Any of the answers; a young server's takes nothing away that another one told."""
        answer, is_sync = self.on_their_way.pop(data.draw(st.integers(0, len(self.on_their_way) - 1)))
        before = {topic: self.cache.get(topic) for topic in "tuv"}
        told = {change.topic for change in self.cache.apply(answer, "pull", is_sync=is_sync)}
        for topic, old in before.items():
            assert (topic in told) == (seen(old) != seen(self.cache.get(topic)))
            if old is not None and old.run != answer.run and not answer.is_warm:
                now = self.cache.get(topic)
                assert now is not None
                assert old.brokers.keys() <= now.brokers.keys()
                assert now.confirmed_absent_since in (None, old.confirmed_absent_since)

    @rule(topic=st.sampled_from("tuv"))
    def forget(self, topic: str) -> None:
        """Nobody uses it any more."""
        self.cache.forget(topic)
        assert (None, False) == (self.cache.get(topic), topic in self.cache.doubted)
        assert topic not in self.cache.point.topics

    @rule(topics=TOPICS)
    def use_only(self, topics: list[str]) -> None:
        """The point is held back by nothing that is not polled."""
        self.cache.point.retain(topics)
        assert self.cache.point.topics <= set(topics)

    @rule(data=st.data())
    def catch_up(self, data: st.DataObject) -> None:
        """A poll of a warm server after all that is on its way: everything is as it says, and confirmed just now."""
        while self.on_their_way:
            self.arrive(data)
        self.is_warm = True
        self.scene.clock.stall(1.0)
        self.poll(["t", "u", "v"])
        while self.on_their_way:
            self.cache.apply(self.on_their_way.pop(0)[0], "pull", is_sync=True)
        assert (set(), self.revision) == (self.cache.doubted, self.cache.point.revision)
        for topic in "tuv":
            known, (route, _) = self.cache.get(topic), self.told.get(topic, (None, 0))
            if known is None or known.confirmed_absent_since is not None:
                assert route is None
            else:
                assert route == TopicRouteData(list(known.data.broker_datas), list(known.data.queue_datas))
                assert 0.0 == known.age


def seen(route: Route | None) -> Any:
    """What somebody who hears of changes knows of a topic: nothing of one that is gone, as of one that never was."""
    return None if route is None or route.confirmed_absent_since is not None else route.data


TestSyncing = Syncing.TestCase


def test_only_what_was_asked_about_is_confirmed(scene: Scene) -> None:
    """All of it at once; a question about some topics says nothing about the others, nor about one from disk."""
    scene.on_disk("d", A)
    scene.told({"t": A, "u": AB}, revision=7)
    scene.clock.stall(30.0)

    [change] = scene.told({"u": B}, revision=8, unchanged=("t",), conditional=True)
    assert ("u", [0.0, 0.0, 90.0]) == (change.topic, scene.ages("t", "u", "d"))
    assert (["t", "u"], ["d"]) == scene.cache.point.known("run-1", ["t", "u", "d"])

    scene.clock.stall(30.0)
    scene.told({}, revision=9, unchanged=("t",), conditional=True)
    assert [0.0, 30.0] == scene.ages("t", "u")
    # a change of u between 8 and 9 would be missed
    assert 8 == scene.cache.point.revision


def test_ages_survive_the_change_of_the_server(scene: Scene) -> None:
    """What the first server confirmed stays as young as it was; its changes are not used any more."""
    scene.told({"t": A, "u": A}, revision=7)
    scene.clock.stall(30.0)
    scene.told({}, revision=7, unchanged=("t", "u"), conditional=True)
    scene.clock.stall(10.0)

    scene.told({"u": A}, run="run-2", revision=1)

    assert [10.0, 0.0] == scene.ages("t", "u")
    assert [] == scene.told({"t": B}, revision=8, conditional=True)
    assert ["broker-a"] == scene.brokers()


@pytest.mark.parametrize(("is_sync", "run"), [(False, "run-1"), (True, "run-2")])
def test_only_a_poll_or_a_watch_decides_whom_to_keep_up_with(scene: Scene, *, is_sync: bool, run: str) -> None:
    """The first server that was asked at all, and then not one that was asked for a single topic."""
    for number in (1, 2):
        answer = Answer(run=f"run-{number}", is_warm=True, topics=["t"], routes={"t": A}, revision=7)
        scene.cache.apply(answer, "pull", is_sync=is_sync)

    assert run == scene.cache.point.run


def test_confirming_ten_thousand_topics_touches_none_of_them(scene: Scene) -> None:
    """One stamp for all: a poll that brings nothing costs nothing."""
    topics = [f"topic-{number}" for number in range(10_000)]
    scene.told(dict.fromkeys(topics, A), revision=7)
    entries = dict(scene.cache._routes)
    scene.clock.stall(30.0)

    scene.told({}, revision=7, unchanged=tuple(topics), conditional=True)

    assert all(entries[topic] is route for topic, route in scene.cache._routes.items())
    assert {0.0} == set(scene.ages(*topics))


def test_a_broker_is_known_as_long_as_a_route_has_it(scene: Scene) -> None:
    """As the last answer told it, also of a topic that is gone. Java looks once in 30 s; here it is counted."""
    scene.told({"t": AB, "u": AB})
    assert {"t", "u"} == scene.cache.topics_of({"broker-b", "stranger"})
    moved = TopicRouteData([msgspec.structs.replace(group("broker-a"), broker_addrs={0: "10.9.9.9:1"})], [])
    scene.told({"t": moved})
    assert {"u"} == scene.cache.topics_of({"broker-b"})
    found = scene.cache.broker("broker-a")
    assert found is not None
    assert {0: "10.9.9.9:1"} == found.broker_addrs
    assert scene.cache.broker("broker-b") is not None

    scene.told({"u": A})
    assert scene.cache.broker("broker-b") is None

    scene.cache.forget("t")
    scene.told({"u": None})
    assert scene.cache.broker("broker-a") is not None
    scene.cache.forget("u")
    assert scene.cache.broker("broker-a") is None


def test_a_group_that_is_listed_twice_is_counted_right(scene: Scene) -> None:
    """A broken server, and no reason to fail."""
    scene.told({"t": TopicRouteData([group("broker-a"), group("broker-a")], [])})
    scene.told({"t": B})

    assert scene.cache.broker("broker-a") is None


def test_what_the_next_process_should_know(scene: Scene) -> None:
    """All routes with the time of their last confirmation, but not those that are known to be none."""
    scene.told({"t": A, "u": B, "v": A}, revision=7)
    scene.told({"u": None}, revision=8, unchanged=("t",), conditional=True)
    scene.clock.stall(30.0)
    scene.told({}, revision=8, unchanged=("t", "u", "v"), conditional=True)

    assert [("t", 130.0), ("v", 130.0)] == [(saved.topic, saved.confirmed_at) for saved in scene.cache.existing()]


def test_disk_never_overwrites_what_a_server_said(scene: Scene) -> None:
    """And topics with the same route share it, wherever they come from."""
    scene.told({"t": A})

    scene.on_disk("t", AB)
    scene.on_disk("u", topic_route("broker-a"))

    first, second = scene.cache.get("t"), scene.cache.get("u")
    assert first is not None
    assert second is not None
    assert ("pull", "disk") == (first.source, second.source)
    assert first.data is second.data


def test_equal_routes_become_one_in_an_order_of_its_own() -> None:
    """Ten thousand topics on the same brokers have one route between them, however servers list these."""
    interner = RouteInterner(list)

    found = interner.shared(topic_route("broker-b", "broker-a"))

    assert interner.shared(topic_route("broker-a", "broker-b")) is found
    assert ["broker-a", "broker-b"] == [data.broker_name for data in found.broker_datas]
    assert ["broker-a", "broker-b"] == [data.broker_name for data in found.queue_datas]


@pytest.mark.parametrize(
    "other",
    [
        group("broker-a", 0),
        group("broker-a", 0, 1, cluster="cluster-2"),
        group("broker-a", 0, 1, zone="z"),
        msgspec.structs.replace(group("broker-a", 0, 1), enable_acting_master=True),
    ],
)
def test_everything_counts_in_the_comparison_of_brokers(other: BrokerData) -> None:
    """Cluster, zone and addresses; the order of the addresses does not."""
    interner = RouteInterner(list)
    shared = interner.shared(TopicRouteData([group("broker-a", 0, 1)], []))

    assert interner.shared(TopicRouteData([group("broker-a", 1, 0)], [])).broker_datas is shared.broker_datas
    assert other == interner.shared(TopicRouteData([other], [])).broker_datas[0]


def test_what_only_one_topic_has_is_kept() -> None:
    """Order configurations, filter servers and mappings."""
    filters = {"10.0.0.1:10911": ["f"]}
    interner = RouteInterner(list)
    plain = interner.shared(topic_route("broker-a"))

    for more in ({"order_topic_conf": ""}, {"filter_server_table": filters}):
        route = msgspec.structs.replace(plain, **more)
        assert (route, plain) == (interner.shared(route), interner.shared(topic_route("broker-a")))


def test_live_routes_go_on_sharing_while_others_come_and_go() -> None:
    """What no live route has is forgotten from time to time; an equal route is still the very one that lives."""
    live: list[TopicRouteData] = []
    interner = RouteInterner(lambda: live)
    live.append(interner.shared(topic_route("broker-a", "broker-b")))

    for number in range(1_000):
        interner.shared(TopicRouteData([group(f"broker-{number}-a")], [queues(f"broker-{number}-a")]))

    assert 300 > len(interner._parts)
    assert interner.shared(topic_route("broker-b", "broker-a")) is live[0]
