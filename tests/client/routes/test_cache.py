"""What an answer does to the routes that a client knows."""

from collections.abc import Mapping

import msgspec
import pytest

from namesrv_client.routes.cache import RouteCache, SavedRoute
from namesrv_client.routes.route import Answer, RouteChange
from namesrv_remoting.bodies.route import TopicRouteData
from tests.support.fake_clock import FakeClock
from tests.support.route_clients import group, queues, topic_route

A, AB, B = topic_route("broker-a"), topic_route("broker-a", "broker-b"), topic_route("broker-b")


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
            is_sync=True,
        )
        return self.cache.apply(answer, "pull")

    def brokers(self, topic: str = "t") -> list[str] | None:
        """The brokers of a topic, None if nothing is known of it."""
        known = self.cache.get(topic)
        return None if known is None else [broker.broker_name for broker in known.data.broker_datas]

    def absent_since(self, topic: str = "t") -> float | None:
        """Since when the topic is confirmed to be gone."""
        known = self.cache.get(topic)
        assert known is not None
        return known.confirmed_absent_since


@pytest.fixture
def scene() -> Scene:
    """At 100 seconds, with nothing known."""
    return Scene()


# -- what is said -----------------------------------------------------------------------------------------------------


def test_a_route_is_known_from_when_it_was_told(scene: Scene) -> None:
    """With its age and its source."""
    [change] = scene.told({"t": A})
    scene.clock.stall(5.0)

    known = scene.cache.get("t")

    assert known is not None
    assert (5.0, "pull", None) == (known.age, known.source, known.confirmed_absent_since)
    assert (5.0, float("inf")) == (scene.cache.age("t"), scene.cache.age("u"))
    assert ("broker-a",) == change.brokers_added


def test_the_same_route_again_is_no_change_and_young(scene: Scene) -> None:
    """However the server orders it."""
    scene.told({"t": AB})
    scene.clock.stall(30.0)

    assert [] == scene.told({"t": topic_route("broker-b", "broker-a")})
    assert 0.0 == scene.cache.age("t")


def test_absence_is_noted_and_the_route_is_kept(scene: Scene) -> None:
    """TOPIC_NOT_EXIST is positive news, and the caller's to judge; since when stays when it is said again."""
    scene.told({"t": A})
    scene.clock.stall(30.0)
    [change] = scene.told({"t": None})
    scene.clock.stall(30.0)

    assert [] == scene.told({"t": None})
    assert (["broker-a"], 130.0, 0.0) == (scene.brokers(), scene.absent_since(), scene.cache.age("t"))
    assert (None, ("broker-a",)) == (change.new, change.brokers_removed)


def test_a_topic_that_comes_back_is_not_absent_any_more(scene: Scene) -> None:
    """And that is a change, whatever its route was before."""
    scene.told({"t": A})
    scene.told({"t": None})

    [change] = scene.told({"t": A})

    assert (None, ("broker-a",)) == (scene.absent_since(), change.brokers_added)


def test_absence_of_what_was_never_known_is_nothing(scene: Scene) -> None:
    """There is no route to keep."""
    assert [] == scene.told({"t": None})
    assert scene.cache.get("t") is None


# -- whom to believe --------------------------------------------------------------------------------------------------


def test_a_young_server_cannot_shrink_a_route(scene: Scene) -> None:
    """Its brokers may not all be back; the old route stays, and gets no younger."""
    scene.told({"t": AB})
    scene.clock.stall(10.0)

    assert [] == scene.told({"t": A}, run="run-2", warm=False)
    assert (["broker-a", "broker-b"], 10.0, {"t"}) == (scene.brokers(), scene.cache.age("t"), scene.cache.doubted)


def test_a_young_server_cannot_say_that_a_topic_is_gone(scene: Scene) -> None:
    """As one that restarted a second ago says of every topic."""
    scene.told({"t": A})

    assert [] == scene.told({"t": None}, run="run-2", warm=False)
    assert (None, {"t"}) == (scene.absent_since(), scene.cache.doubted)


def test_a_warm_server_can(scene: Scene) -> None:
    """After the warm-up what it lacks is gone."""
    scene.told({"t": AB, "u": AB})
    scene.told({"t": A, "u": None}, run="run-2", warm=False)

    scene.told({"t": A, "u": None}, run="run-2")

    assert (["broker-a"], 100.0, set()) == (scene.brokers(), scene.absent_since("u"), scene.cache.doubted)


def test_a_young_server_can_add(scene: Scene) -> None:
    """A broker or a topic that nobody knew yet is good news from anybody."""
    scene.told({"t": A})

    scene.told({"t": AB, "u": B}, run="run-2", warm=False)

    assert (["broker-a", "broker-b"], ["broker-b"]) == (scene.brokers(), scene.brokers("u"))


def test_a_young_server_can_take_back_what_it_said_itself(scene: Scene) -> None:
    """It knew the broker in this very run: now it is gone, not still on its way."""
    scene.told({"t": AB}, warm=False)

    [change] = scene.told({"t": A}, warm=False)
    assert ("broker-b",) == change.brokers_removed

    scene.told({"t": None}, warm=False)
    assert 100.0 == scene.absent_since()


def test_a_route_from_disk_is_not_shrunk_by_a_young_server(scene: Scene) -> None:
    """After a power cut of the whole house, clients and servers start together."""
    scene.cache.restore([SavedRoute("t", AB, 40.0)])

    scene.told({"t": A}, warm=False)

    assert (["broker-a", "broker-b"], 60.0) == (scene.brokers(), scene.cache.age("t"))


# -- up to which revision ---------------------------------------------------------------------------------------------


def test_what_is_left_out_of_the_changes_is_confirmed(scene: Scene) -> None:
    """All at once."""
    scene.told({"t": A, "u": AB}, revision=7)
    scene.clock.stall(30.0)

    [change] = scene.told({"u": B}, revision=8, unchanged=("t",), conditional=True)

    assert ("u", 0.0, 0.0) == (change.topic, scene.cache.age("t"), scene.cache.age("u"))


def test_only_what_was_asked_about_is_confirmed(scene: Scene) -> None:
    """A question about some topics says nothing about the others."""
    scene.told({"t": A, "u": A}, revision=7)
    scene.clock.stall(30.0)

    scene.told({}, revision=8, unchanged=("t",), conditional=True)

    assert (0.0, 30.0) == (scene.cache.age("t"), scene.cache.age("u"))


def test_a_route_that_was_handed_out_does_not_grow_younger(scene: Scene) -> None:
    """It is a value; the cache's own is confirmed."""
    scene.told({"t": A}, revision=7)
    held = scene.cache.get("t")
    scene.clock.stall(30.0)
    scene.told({}, revision=7, unchanged=("t",), conditional=True)

    assert held is not None
    assert (30.0, 0.0) == (held.age, scene.cache.age("t"))


def test_a_doubted_topic_is_asked_about_fully_until_it_is_believed(scene: Scene) -> None:
    """The server tells a change once: without this, a broker that never came back would stay in the route for ever."""
    scene.told({"t": AB, "u": A}, run="run-1", revision=7)

    scene.told({"t": A, "u": A}, run="run-2", revision=3, warm=False)
    assert (["u"], ["t"]) == scene.cache.point.known("run-2", ["t", "u"])

    scene.told({}, run="run-2", revision=3, unchanged=("u",), conditional=True)
    assert ({"t"}, ["broker-a", "broker-b"]) == (scene.cache.doubted, scene.brokers())

    scene.told({"t": A}, run="run-2", revision=3)
    assert (set(), ["broker-a"]) == (scene.cache.doubted, scene.brokers())
    assert (["t", "u"], []) == scene.cache.point.known("run-2", ["t", "u"])


def test_a_route_from_disk_is_not_confirmed_by_a_server_that_was_not_asked_fully(scene: Scene) -> None:
    """That it did not change since revision 7 says nothing about how it was in the last process."""
    scene.cache.restore([SavedRoute("t", A, 40.0)])
    scene.told({"u": A}, revision=7)

    scene.told({}, revision=8, unchanged=("u",), conditional=True)

    assert (60.0, ["t"]) == (scene.cache.age("t"), scene.cache.point.known("run-1", ["t"])[1])


def test_ages_survive_the_change_of_the_server(scene: Scene) -> None:
    """What the first server confirmed stays as young as it was."""
    scene.told({"t": A, "u": A}, revision=7)
    scene.clock.stall(30.0)
    scene.told({}, revision=7, unchanged=("t", "u"), conditional=True)
    scene.clock.stall(10.0)

    scene.told({"u": A}, run="run-2", revision=1)

    assert (10.0, 0.0) == (scene.cache.age("t"), scene.cache.age("u"))


def test_changes_of_a_run_that_is_over_are_not_used(scene: Scene) -> None:
    """The answer of the first server came when the second had been asked already."""
    scene.told({"t": A}, revision=7)
    scene.told({"t": AB}, run="run-2", revision=1)

    assert [] == scene.told({"t": B}, revision=8, conditional=True)
    assert ["broker-a", "broker-b"] == scene.brokers()


def test_one_topic_of_another_server_is_asked_about_fully(scene: Scene) -> None:
    """It was known of run 1; what is known now is what Apache's server says."""
    scene.told({"t": A, "u": A}, revision=7)

    scene.told({"t": AB}, run="10.0.0.9:9876#1")

    assert (["u"], ["t"]) == scene.cache.point.known("run-1", ["t", "u"])


def test_confirming_ten_thousand_topics_touches_none_of_them(scene: Scene) -> None:
    """One stamp for all: a poll that brings nothing costs nothing."""
    topics = [f"topic-{number}" for number in range(10_000)]
    scene.told(dict.fromkeys(topics, A), revision=7)
    entries = dict(scene.cache._routes)
    stamps = {entry.confirmed_at for entry in entries.values()}
    scene.clock.stall(30.0)

    scene.told({}, revision=7, unchanged=tuple(topics), conditional=True)

    assert {100.0} == stamps == {entry.confirmed_at for entry in entries.values()}
    assert entries == scene.cache._routes
    assert {0.0} == {scene.cache.age(topic) for topic in topics}


# -- brokers ----------------------------------------------------------------------------------------------------------


def test_a_broker_is_as_the_last_answer_told_it(scene: Scene) -> None:
    """Whichever topic it was about."""
    scene.told({"t": A})
    moved = TopicRouteData([msgspec.structs.replace(group("broker-a"), broker_addrs={0: "10.9.9.9:1"})], [])
    scene.told({"u": moved})

    found = scene.cache.broker("broker-a")

    assert found is not None
    assert {0: "10.9.9.9:1"} == found.broker_addrs


def test_a_broker_is_known_as_long_as_a_route_has_it(scene: Scene) -> None:
    """Java looks for those that are in no route once in 30 s; here it is counted."""
    scene.told({"t": AB, "u": AB})
    scene.told({"t": A})
    assert scene.cache.broker("broker-b") is not None

    scene.told({"u": A})
    assert scene.cache.broker("broker-b") is None
    assert scene.cache.broker("broker-a") is not None

    scene.cache.forget("t")
    scene.cache.forget("u")
    assert scene.cache.broker("broker-a") is None


def test_a_group_that_is_listed_twice_is_counted_right(scene: Scene) -> None:
    """A broken server, and no reason to fail."""
    scene.told({"t": TopicRouteData([group("broker-a"), group("broker-a")], [])})
    scene.told({"t": B})

    assert scene.cache.broker("broker-a") is None


def test_brokers_of_a_topic_that_is_gone_are_still_known(scene: Scene) -> None:
    """Its route is kept, and somebody may want to use it."""
    scene.told({"t": A})
    scene.told({"t": None})

    assert scene.cache.broker("broker-a") is not None


def test_topics_of_brokers(scene: Scene) -> None:
    """Those that a failure concerns."""
    scene.told({"t": A, "u": B, "v": AB})

    assert {"t", "v"} == scene.cache.topics_of({"broker-a"})
    assert {"t", "u", "v"} == scene.cache.topics_of({"broker-a", "broker-b"})


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_what_the_next_process_should_know(scene: Scene) -> None:
    """All routes with the time of their last confirmation, but not those that are known to be none."""
    scene.told({"t": A, "u": B, "v": A}, revision=7)
    scene.told({"u": None}, revision=8, unchanged=("t",), conditional=True)
    scene.clock.stall(30.0)
    scene.told({}, revision=8, unchanged=("t", "u", "v"), conditional=True)

    assert [("t", 130.0), ("v", 130.0)] == [(saved.topic, saved.confirmed_at) for saved in scene.cache.saved()]


def test_disk_never_overwrites_what_a_server_said(scene: Scene) -> None:
    """It is read at the start, and a second start would not change that."""
    scene.told({"t": A})

    scene.cache.restore([SavedRoute("t", AB, 90.0), SavedRoute("u", AB, 90.0)])

    assert (["broker-a"], ["broker-a", "broker-b"]) == (scene.brokers("t"), scene.brokers("u"))
    known = scene.cache.get("u")
    assert known is not None
    assert "disk" == known.source


def test_topics_with_the_same_route_share_it(scene: Scene) -> None:
    """However they came."""
    scene.cache.restore([SavedRoute("t", topic_route("broker-a"), 40.0)])
    scene.told({"u": topic_route("broker-a")})

    first, second = scene.cache.get("t"), scene.cache.get("u")

    assert first is not None
    assert second is not None
    assert first.data is second.data


def test_what_is_shown(scene: Scene) -> None:
    """For logs."""
    scene.told({"t": TopicRouteData([group("broker-a")], [queues("broker-a")])}, revision=7)

    assert "<RouteCache [1 topics | 0 doubted | <SyncPoint [run-1 | 7 | 1 topics]>]>" == repr(scene.cache)
    assert 1 == len(scene.cache)
