"""The client's route cache and sync point: effects of responses, and conditional requests."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from namesrv_client import Route, RouteChange
from namesrv_client.routes.cache import KnownRoutes
from namesrv_client.routes.interner import RouteInterner
from namesrv_client.routes.response import RouteResponse
from namesrv_remoting.bodies.route import BrokerData, TopicRouteData
from tests.support.fake_clock import FakeClock
from tests.support.route_clients import group, queues, topic_route

A, AB, B = topic_route("broker-a"), topic_route("broker-a", "broker-b"), topic_route("broker-b")
SLAVE = TopicRouteData([group("broker-a", 0, 1)], [])


class Scene:
    """A cache and the responses of servers."""

    def __init__(self) -> None:
        self.clock = FakeClock(monotonic=100.0)
        self.cache = KnownRoutes(self.clock)

    def respond(
        self,
        routes: Mapping[str, TopicRouteData | None],
        *,
        boot_id: str = "boot-1",
        connection: int = 1,
        complete: bool = True,
        has_been_complete: bool = False,
        revision: int | None = None,
        unchanged: tuple[str, ...] = (),
        conditional: bool = False,
        is_sync: bool = True,
    ) -> list[RouteChange]:
        """Apply a server's response, by default to a poll, and return the changes."""
        answer = RouteResponse(
            boot_id=boot_id,
            connection_number=connection,
            is_complete=complete,
            has_been_complete=complete or has_been_complete,
            topics=(*routes, *unchanged),
            routes=routes,
            revision=revision,
            is_conditional=conditional,
        )
        return self.cache.apply(answer, "pull", is_sync=is_sync)

    def on_disk(self, topic: str, data: TopicRouteData) -> None:
        """Restore a route from disk that was confirmed a minute ago."""
        self.cache.restore([Route(topic, data, "disk", self.clock.monotonic() - 60.0, None, self.clock)])

    def brokers(self, topic: str = "t") -> list[str] | None:
        """The brokers of a topic; None for an unknown topic."""
        known = self.cache.get(topic)
        return None if known is None else list(known.brokers)

    def absent_since(self, topic: str = "t") -> float | None:
        """The time since which the topic is confirmed to be absent."""
        known = self.cache.get(topic)
        assert known is not None
        return known.confirmed_absent_since

    def ages(self, *topics: str) -> list[float]:
        """Seconds since each topic was confirmed; infinity for an unknown topic."""
        found = (self.cache.get(topic) for topic in topics)
        return [float("inf") if route is None else route.age for route in found]


@pytest.fixture
def scene() -> Scene:
    """A scene at 100 seconds with an empty cache."""
    return Scene()


def test_route_has_age_and_source(scene: Scene) -> None:
    """A route object in the hands of a caller keeps its age when the cache confirms the route."""
    [change] = scene.respond({"t": A}, revision=7)
    held = scene.cache.get("t")
    scene.clock.stall(5.0)
    assert scene.respond({}, revision=7, unchanged=("t",), conditional=True) == []

    assert held is not None
    assert (held.age, held.source, held.confirmed_absent_since) == (5.0, "pull", None)
    assert scene.ages("t", "u") == [0.0, float("inf")]
    assert change.brokers_added == ("broker-a",)
    assert repr(scene.cache) == "<KnownRoutes [1 topics | 0 to request again | <SyncPoint [boot-1 | 7 | 1 topics]>]>"


@pytest.mark.parametrize(
    ("old", "new", "is_accepted"),
    [(AB, A, False), (A, None, False), (SLAVE, A, False), (A, AB, True), (A, SLAVE, True), (A, A, True)],
)
def test_incomplete_server_removes_nothing(
    scene: Scene, old: TopicRouteData, new: TopicRouteData | None, *, is_accepted: bool
) -> None:
    """A server that is not complete removes no broker, and does not confirm the old route; it may add brokers."""
    for source in ("server", "disk"):
        topic = f"from {source}"
        if source == "disk":
            # after a power cut clients and servers start together
            scene.on_disk(topic, old)
        else:
            scene.respond({topic: old})
        scene.clock.stall(10.0)
        [age] = scene.ages(topic)

        changes = scene.respond({topic: new}, boot_id="boot-2", complete=False)

        assert is_accepted == (topic not in scene.cache.to_request_again) == (scene.ages(topic) == [0.0])
        assert bool(changes) == (is_accepted and old is not new)
        assert is_accepted or (scene.ages(topic), scene.absent_since(topic)) == ([age], None)
        scene.respond({topic: new}, boot_id="boot-2")
        assert (scene.cache.to_request_again, scene.ages(topic)) == (set(), [0.0])
        assert (scene.absent_since(topic) is not None) == (new is None)


def test_incomplete_server_removes_what_it_added(scene: Scene) -> None:
    """A server that knew the broker under the same boot id removes it: the broker is not merely late."""
    scene.respond({"t": AB}, complete=False)

    [change] = scene.respond({"t": A}, complete=False)
    assert change.brokers_removed == ("broker-b",)

    scene.respond({"t": None}, complete=False)
    assert scene.absent_since() == 100.0


@pytest.mark.parametrize("unchanged", [False, True])
def test_incomplete_server_removes_nothing_that_it_sent_over_another_connection(
    scene: Scene, *, unchanged: bool
) -> None:
    """The cut that ended the connection may have ended those of live brokers, too."""
    scene.respond({"t": AB}, revision=7)
    scene.clock.stall(10.0)
    if unchanged:
        scene.respond({}, connection=2, complete=False, revision=7, unchanged=("t",), conditional=True)

    assert scene.respond({"t": A}, connection=2, complete=False, revision=8, conditional=True) == []
    assert (scene.brokers(), scene.cache.to_request_again) == (["broker-a", "broker-b"], {"t"})

    [change] = scene.respond({"t": A}, connection=2, revision=8)
    assert change.brokers_removed == ("broker-b",)


def test_server_that_has_been_complete_on_the_connection_removes_what_it_sent_before(scene: Scene) -> None:
    """The connection outlived the loss of the brokers; the same response of another boot removes nothing."""
    scene.respond({"t": AB, "u": AB}, revision=7)
    scene.respond({}, connection=2, revision=7, unchanged=("t", "u"), conditional=True)

    scene.respond({"t": A}, connection=2, complete=False, has_been_complete=True, revision=8, conditional=True)
    assert scene.brokers("t") == ["broker-a"]

    scene.respond({"u": A}, boot_id="boot-2", connection=2, complete=False, has_been_complete=True, revision=1)
    assert scene.brokers("u") == ["broker-a", "broker-b"]


TOPICS = st.lists(st.sampled_from("tuv"), min_size=1, unique=True)


class Syncing(RuleBasedStateMachine):
    """A server changes and restarts, and responses arrive in any order: a poll corrects all routes.

    A server that is not complete removes nothing from a route of another boot id, nor of another connection on which
    it was not complete either.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene()
        self.cache = self.scene.cache
        self.boots = self.connections = self.revision = 0
        # topic -> its route, and the revision of its last change
        self.current: dict[str, tuple[TopicRouteData | None, int]] = {}
        # whether the server is, and has been on this connection, complete
        self.is_complete, self.has_been_complete = True, False
        # responses that have not arrived yet, each with True for a poll
        self.under_way: list[tuple[RouteResponse, bool]] = []

    @property
    def boot_id(self) -> str:
        """The boot id of the server's current process."""
        return f"boot-{self.boots}"

    @rule(topics=TOPICS, route=st.sampled_from([A, AB, B, None]))
    def change(self, topics: list[str], route: TopicRouteData | None) -> None:
        """Brokers of some topics come and go."""
        self.revision += 1
        self.current |= dict.fromkeys(topics, (route, self.revision))

    @rule()
    def restart(self) -> None:
        """The server restarts without any broker behind a proxy, or another server takes its place."""
        self.boots, self.revision, self.current, self.is_complete = self.boots + 1, 0, {}, False
        self.has_been_complete = False

    @rule()
    def cut(self) -> None:
        """The network around the server is cut and heals: the client connects again before the brokers do."""
        self.connections, self.is_complete, self.has_been_complete = self.connections + 1, False, False

    @rule()
    def complete(self) -> None:
        """All brokers have had time to register."""
        self.is_complete = True

    @rule(topics=TOPICS)
    def ask(self, topics: list[str]) -> None:
        """The application requests some topics."""
        self.answer(topics, None, is_sync=False)

    @rule(topics=TOPICS)
    def poll(self, topics: list[str]) -> None:
        """A poll requests changes of the topics in the sync point, and the full routes of the others."""
        known, others = self.cache.point.divide(self.boot_id, topics)
        if known:
            self.answer(known, self.cache.point.revision, is_sync=True)
        if others:
            self.answer(others, None, is_sync=True)

    def answer(self, topics: list[str], since: int | None, *, is_sync: bool) -> None:
        """The server sends its current routes in a response that may arrive much later."""
        found = {topic: self.current.get(topic, (None, 0)) for topic in topics}
        self.has_been_complete = self.has_been_complete or self.is_complete
        answer = RouteResponse(
            boot_id=self.boot_id,
            connection_number=self.connections,
            is_complete=self.is_complete,
            has_been_complete=self.has_been_complete,
            topics=topics,
            routes={topic: route for topic, (route, at) in found.items() if since is None or at > since},
            revision=self.revision,
            is_conditional=since is not None,
        )
        self.under_way.append((answer, is_sync))

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        """One of the responses arrives."""
        answer, is_sync = self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1)))
        before = {topic: self.cache.get(topic) for topic in "tuv"}
        changed = {change.topic for change in self.cache.apply(answer, "pull", is_sync=is_sync)}
        for topic, old in before.items():
            assert (topic in changed) == (seen(old) != seen(self.cache.get(topic)))
            if old is not None and not answer.is_complete and not may_remove(answer, old):
                now = self.cache.get(topic)
                assert now is not None
                assert old.brokers.keys() <= now.brokers.keys()
                assert now.confirmed_absent_since in (None, old.confirmed_absent_since)

    @rule(topic=st.sampled_from("tuv"))
    def forget(self, topic: str) -> None:
        """The topic is not used any more."""
        self.cache.forget(topic)
        assert (self.cache.get(topic), topic in self.cache.to_request_again) == (None, False)
        assert topic not in self.cache.point.topics

    @rule(topics=TOPICS)
    def use_only(self, topics: list[str]) -> None:
        """The sync point drops topics that are not polled."""
        self.cache.point.retain(topics)
        assert self.cache.point.topics <= set(topics)

    @rule(data=st.data())
    def catch_up(self, data: st.DataObject) -> None:
        """A poll of a complete server, after all responses have arrived, makes every route current and confirmed."""
        while self.under_way:
            self.arrive(data)
        self.is_complete = True
        self.scene.clock.stall(1.0)
        self.poll(["t", "u", "v"])
        while self.under_way:
            self.cache.apply(self.under_way.pop(0)[0], "pull", is_sync=True)
        assert (set(), self.revision) == (self.cache.to_request_again, self.cache.point.revision)
        for topic in "tuv":
            known, (route, _) = self.cache.get(topic), self.current.get(topic, (None, 0))
            if known is None or known.confirmed_absent_since is not None:
                assert route is None
            else:
                assert route == TopicRouteData(list(known.data.broker_datas), list(known.data.queue_datas))
                assert known.age == 0.0


def may_remove(answer: RouteResponse, old: Route) -> bool:
    """True if a server that is not complete may remove brokers from the route."""
    boot_id, connection_number = old.sender
    return answer.boot_id == boot_id and (answer.has_been_complete or answer.connection_number == connection_number)


def seen(route: Route | None) -> Any:
    """The route that a listener of changes knows: an absent topic has none, like an unknown one."""
    return None if route is None or route.confirmed_absent_since is not None else route.data


TestSyncing = Syncing.TestCase


def test_only_requested_topics_are_confirmed(scene: Scene) -> None:
    """A conditional response confirms its topics, and neither other topics nor routes from disk."""
    scene.on_disk("d", A)
    scene.respond({"t": A, "u": AB}, revision=7)
    scene.clock.stall(30.0)

    [change] = scene.respond({"u": B}, revision=8, unchanged=("t",), conditional=True)
    assert (change.topic, scene.ages("t", "u", "d")) == ("u", [0.0, 0.0, 90.0])
    assert scene.cache.point.divide("boot-1", ["t", "u", "d"]) == (["t", "u"], ["d"])

    scene.clock.stall(30.0)
    scene.respond({}, revision=9, unchanged=("t",), conditional=True)
    assert scene.ages("t", "u") == [0.0, 30.0]
    # a change of u between 8 and 9 would be missed
    assert scene.cache.point.revision == 8


def test_ages_survive_a_failover(scene: Scene) -> None:
    """The confirmations of the first server stay as they were; its later changes are ignored."""
    scene.respond({"t": A, "u": A}, revision=7)
    scene.clock.stall(30.0)
    scene.respond({}, revision=7, unchanged=("t", "u"), conditional=True)
    scene.clock.stall(10.0)

    scene.respond({"u": A}, boot_id="boot-2", revision=1)

    assert scene.ages("t", "u") == [10.0, 0.0]
    assert scene.respond({"t": B}, revision=8, conditional=True) == []
    assert scene.brokers() == ["broker-a"]


@pytest.mark.parametrize(("is_sync", "boot_id"), [(False, "boot-1"), (True, "boot-2")])
def test_only_a_poll_moves_the_sync_point_to_another_server(scene: Scene, *, is_sync: bool, boot_id: str) -> None:
    """The sync point follows the first server, and then only a server that was polled for all topics."""
    for number in (1, 2):
        scene.respond({"t": A}, boot_id=f"boot-{number}", revision=7, is_sync=is_sync)

    assert scene.cache.point.boot_id == boot_id


def test_confirming_topics_costs_no_work_per_topic(scene: Scene) -> None:
    """A poll without changes updates one timestamp for all topics."""
    topics = [f"topic-{number}" for number in range(10_000)]
    scene.respond(dict.fromkeys(topics, A), revision=7)
    entries = dict(scene.cache._routes)
    scene.clock.stall(30.0)

    scene.respond({}, revision=7, unchanged=tuple(topics), conditional=True)

    assert all(entries[topic] is route for topic, route in scene.cache._routes.items())
    assert set(scene.ages(*topics)) == {0.0}


def test_broker_is_known_while_a_route_contains_it(scene: Scene) -> None:
    """A group is as in the last response, also for an absent topic. Java cleans up every 30 s; we count uses."""
    scene.respond({"t": AB, "u": AB})
    assert scene.cache.topics_of({"broker-b", "stranger"}) == {"t", "u"}
    moved = TopicRouteData([msgspec.structs.replace(group("broker-a"), broker_addrs={0: "10.9.9.9:1"})], [])
    scene.respond({"t": moved})
    assert scene.cache.topics_of({"broker-b"}) == {"u"}
    found = scene.cache.broker("broker-a")
    assert found is not None
    assert found.broker_addrs == {0: "10.9.9.9:1"}
    assert scene.cache.broker("broker-b") is not None

    scene.respond({"u": A})
    assert scene.cache.broker("broker-b") is None

    scene.cache.forget("t")
    scene.respond({"u": None})
    assert scene.cache.broker("broker-a") is not None
    scene.cache.forget("u")
    assert scene.cache.broker("broker-a") is None


def test_duplicate_group_is_counted_once(scene: Scene) -> None:
    """A broken server may list a group twice in a route."""
    scene.respond({"t": TopicRouteData([group("broker-a"), group("broker-a")], [])})
    scene.respond({"t": B})

    assert scene.cache.broker("broker-a") is None


def test_existing_routes_are_saved(scene: Scene) -> None:
    """Saved routes have the time of their last confirmation; absent topics are not saved."""
    scene.respond({"t": A, "u": B, "v": A}, revision=7)
    scene.respond({"u": None}, revision=8, unchanged=("t",), conditional=True)
    scene.clock.stall(30.0)
    scene.respond({}, revision=8, unchanged=("t", "u", "v"), conditional=True)

    assert [(saved.topic, saved.confirmed_at) for saved in scene.cache.existing()] == [("t", 130.0), ("v", 130.0)]


def test_route_from_disk_never_replaces_a_servers(scene: Scene) -> None:
    """Topics with equal routes share one object, from any source."""
    scene.respond({"t": A})

    scene.on_disk("t", AB)
    scene.on_disk("u", topic_route("broker-a"))

    first, second = scene.cache.get("t"), scene.cache.get("u")
    assert first is not None
    assert second is not None
    assert (first.source, second.source) == ("pull", "disk")
    assert first.data is second.data


def test_equal_routes_are_shared_in_sorted_order() -> None:
    """Ten thousand topics on the same brokers share one route, regardless of the order in responses."""
    interner = RouteInterner(list)

    found = interner.shared(topic_route("broker-b", "broker-a"))

    assert interner.shared(topic_route("broker-a", "broker-b")) is found
    assert [data.broker_name for data in found.broker_datas] == ["broker-a", "broker-b"]
    assert [data.broker_name for data in found.queue_datas] == ["broker-a", "broker-b"]


@pytest.mark.parametrize(
    "other",
    [
        group("broker-a", 0),
        group("broker-a", 0, 1, cluster="cluster-2"),
        group("broker-a", 0, 1, zone="z"),
        msgspec.structs.replace(group("broker-a", 0, 1), enable_acting_master=True),
    ],
)
def test_brokers_are_compared_by_all_fields(other: BrokerData) -> None:
    """Cluster, zone and addresses count; the order of addresses does not."""
    interner = RouteInterner(list)
    shared = interner.shared(TopicRouteData([group("broker-a", 0, 1)], []))

    assert interner.shared(TopicRouteData([group("broker-a", 1, 0)], [])).broker_datas is shared.broker_datas
    assert interner.shared(TopicRouteData([other], [])).broker_datas[0] == other


def test_topic_specific_fields_are_kept() -> None:
    """Order configurations and filter servers are not shared between topics."""
    filters = {"10.0.0.1:10911": ["f"]}
    interner = RouteInterner(list)
    plain = interner.shared(topic_route("broker-a"))

    for more in ({"order_topic_conf": ""}, {"filter_server_table": filters}):
        route = msgspec.structs.replace(plain, **more)
        assert (interner.shared(route), interner.shared(topic_route("broker-a"))) == (route, plain)


def test_interner_forgets_unused_routes_only() -> None:
    """Unused routes are dropped now and then; a route equal to a live one is still the same object."""
    live: list[TopicRouteData] = []
    interner = RouteInterner(lambda: live)
    live.append(interner.shared(topic_route("broker-a", "broker-b")))

    for number in range(1_000):
        interner.shared(TopicRouteData([group(f"broker-{number}-a")], [queues(f"broker-{number}-a")]))

    assert len(interner._parts) < 300
    assert interner.shared(topic_route("broker-b", "broker-a")) is live[0]
