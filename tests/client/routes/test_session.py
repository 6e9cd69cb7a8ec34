"""The session: the contents of requests, watches, and the choice of another server."""

import asyncio
from pathlib import Path

import pytest

from namesrv_client import RouteUnavailableError
from namesrv_client.routes.response import RouteResponse
from namesrv_remoting.errors import RequestTimeoutError
from tests.support.apache_server import ApacheServer, apache_route
from tests.support.fake_clock import FakeClock, passing, until
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import Broker
from tests.support.route_clients import BROKER_A, BROKER_B, INFO, PULL, registered, request_count
from tests.support.route_sessions import native, session_of

BROKER_C = Broker("broker-c", 0, "10.0.0.3:10911")


async def test_server_that_leaves_the_list_while_it_is_chosen_anew(tmp_path: Path) -> None:
    """The list changes with the response of the other server: the chosen one stays, and no error ends later choices."""
    async with native(tmp_path, shuffle=list.reverse) as (scene, _, _):
        chosen = scene.session.chosen
        assert chosen is not None

        def take(answer: RouteResponse) -> None:
            scene.take(answer)
            scene.session.use((chosen,))

        assert not await scene.session.choose_anew(["orders"], take)
        assert (scene.session.chosen, len(scene.answers)) == (chosen, 1)


@pytest.mark.parametrize(("others", "kept_seconds"), [((), 35.0), ((BROKER_C,), 0.0)])
async def test_server_that_was_cut_off_removes_no_broker(
    tmp_path: Path, others: tuple[Broker, ...], kept_seconds: float
) -> None:
    """A client changes to a server that has lost half of its brokers, and keeps its route; a third is believed gone."""

    def brokers() -> list[str]:
        route = scene.cache.get("orders")
        return [] if route is None else sorted(route.brokers)

    async with native(tmp_path, warm_up_seconds=0.0) as (scene, (one, two), proxy):
        for server in (one, two):
            await registered(server, *others)
        await registered(one, BROKER_B)
        last = await registered(two, BROKER_B)
        await scene.changes("orders")
        all_brokers = brokers()
        assert len(all_brokers) == 2 + len(others)
        last.close()
        await until(lambda: len(two.namesrv.manager.tables.broker_live_table) == 1 + len(others))
        proxy.cut()

        if kept_seconds:
            await scene.changes("orders")
            assert (scene.session.chosen, brokers()) == (two.where, all_brokers)
            await scene.clock.advance(kept_seconds)
        await scene.changes("orders")
        assert (scene.session.chosen, set(all_brokers) - set(brokers())) == (two.where, {"broker-b"})


async def test_only_open_topics_go_to_the_next_server(tmp_path: Path) -> None:
    """A server in its warm-up denies no topic and stays the chosen one; topics that no server knows get a reason."""
    async with native(tmp_path, 1, protocol="auto") as (scene, _, proxy), ApacheServer() as two:
        scene.session.use((proxy.address, two.address))
        two.routes |= {"elsewhere": apache_route("broker-b"), "bad": 1}
        reasons = await scene.session.fetch(["orders", "elsewhere", "none", "bad"], scene.take)

        assert list(reasons) == ["bad"]
        unknown = (
            f"{proxy.address}: has just started or lost its brokers, and may not know all brokers of topic bad yet"
        )
        assert unknown in reasons["bad"]
        assert f"{two.address}: a bug" in reasons["bad"]
        assert (sorted(two.topics_asked), scene.session.chosen) == (["bad", "elsewhere", "none"], proxy.address)
        known = {topic: scene.cache.get(topic) for topic in ("orders", "elsewhere")}
        assert {topic: list(route.brokers) for topic, route in known.items() if route is not None} == {
            "orders": ["broker-a"],
            "elsewhere": ["broker-b"],
        }


async def test_only_changed_topics_are_returned(tmp_path: Path) -> None:
    """One conditional request covers all topics, also over a new connection, but not topics that are new."""
    async with native(tmp_path, 1) as (scene, (server,), proxy):
        assert await scene.changes("orders", "bills", "none") == ["bills", "none", "orders"]
        proxy.cut()
        await proxy.heal()
        await until(lambda: not scene.session.socket_descriptors())

        assert await scene.changes("orders", "bills", "none") == []
        assert [answer.is_conditional for answer in scene.answers] == [True]
        assert (request_count(server, PULL), request_count(server, INFO)) == (2, 2)

        await registered(server, BROKER_A, topics=("orders", "bills", "refunds"), counter=2)
        assert await scene.changes("orders", "bills", "refunds") == ["refunds"]


async def test_failover_requests_all_topics_again(tmp_path: Path) -> None:
    """Revisions are per server; an Apache server has none and always gets requests for all topics.

    The recovered server is not chosen again, and no other server is connected.
    """
    async with native(tmp_path, protocol="auto") as (scene, (_, second), proxy), ApacheServer() as apache:
        apache.routes["orders"] = apache_route("broker-z")
        await scene.changes("orders", "bills")
        assert len(scene.session.socket_descriptors()) == 1
        proxy.cut()
        assert await scene.changes("orders", "bills") == ["bills", "orders"]
        await proxy.heal()
        assert await scene.changes("orders", "bills") == []
        assert (scene.session.chosen, list(scene.session.errors)) == (second.where, [proxy.address])
        assert [answer.boot_id for answer in scene.answers] == [second.namesrv.boot.id]

        scene.session.use((apache.address,))
        for _ in range(2):
            assert await scene.changes("orders", "bills") == ["bills", "orders"]
            assert [answer.revision for answer in scene.answers] == [None, None]


async def test_poll_that_a_server_refuses_goes_to_the_next(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The access file of one server refuses all topics of a poll; if every server does, that is logged once.

    A refusal of some topics is logged once, too.
    """
    access = tmp_path / "access.toml"
    account = '[accounts.clients]\nnetworks = ["127.0.0.0/8"]\nmay = [%s]\n'
    access.write_text(account % '"broker-control", { access = "route-read", topics = ["bills"] }')
    clock = FakeClock()
    async with (
        namesrv_in_process(tmp_path / "one", clock=clock, access=str(access)) as one,
        namesrv_in_process(tmp_path / "two", clock=clock) as two,
        session_of(one, two, clock=clock) as scene,
    ):
        for server in (one, two):
            await registered(server, BROKER_A)
        assert await scene.changes("orders") == ["orders"]
        assert [status.pulls for status in scene.session.statuses()] == [{"refused": 1}, {"answered": 1}]
        assert await scene.changes("orders", "bills") == ["bills"]
        assert await scene.changes("orders", "bills") == []

        scene.session.use((one.where,))
        for _ in range(2):
            with pytest.raises(RouteUnavailableError, match=r"lacks route-read for topic orders"):
                await scene.changes("orders")
        refusal = "account clients lacks route-read for topic orders (PULL_ROUTES)"
        assert [record.getMessage() for record in caplog.records if record.name == "namesrv_client.connection"] == [
            f"{one.where} gave no route for 1 of 2 topics, such as orders: {refusal}",
            f"no NameServer could answer: {one.where}: {refusal}",
        ]
        assert await scene.session.watch(["orders"], 25.0, scene.take) == (False, ["orders"])


async def test_warning_of_refused_topics_names_the_server_that_answered(caplog: pytest.LogCaptureFixture) -> None:
    """The chosen server refuses all topics; the next one has bills, refuses orders, and has a broken route of rates.

    The reason is that of the topic that the warning names.
    """
    async with ApacheServer() as one, ApacheServer() as two, session_of(one, two, protocol="rocketmq") as scene:
        one.routes |= {"bills": 13, "orders": 13, "rates": 13}
        two.routes |= {"bills": apache_route("broker-a"), "orders": 16, "rates": b"{"}

        assert await scene.changes("bills", "orders", "rates") == ["bills"]
        assert one.address == scene.session.chosen
        assert [record.getMessage() for record in caplog.records if record.name == "namesrv_client.connection"] == [
            f"{two.address} gave no route for 2 of 3 topics, such as orders: a bug",
        ]


@pytest.mark.parametrize("others", [[], ["bills"]])
async def test_topics_of_one_request_have_their_own_reasons(others: list[str]) -> None:
    """The server refuses one topic, and its route of another one is malformed."""
    async with ApacheServer() as server, session_of(server, protocol="rocketmq") as scene:
        server.routes |= {"bills": apache_route("broker-a"), "orders": 16, "rates": b"{"}

        malformed = "body of TopicRouteData cannot be read: Input data was truncated"
        assert await scene.session.fetch([*others, "rates", "orders"], scene.take) == {
            "orders": f"no NameServer could answer: {server.address}: a bug",
            "rates": f"no NameServer could answer: {server.address}: {malformed}",
        }


async def test_request_that_a_silent_server_fails_names_the_silence(tmp_path: Path) -> None:
    """A ping without a response ends the connection; a request under way fails for that reason, too."""
    async with native(tmp_path, 1) as (scene, _, proxy):
        await scene.routes("orders")
        proxy.stall()
        asking = asyncio.ensure_future(scene.changes("orders"))
        pinging = asyncio.ensure_future(scene.session.is_watch_stale(1.5))
        await passing(scene.clock, lambda: pinging.done() and asking.done())
        assert isinstance(pinging.exception(), RequestTimeoutError)

        where = proxy.address
        reason = f"connection to {where} was closed on this side: request {INFO} to {where}: no answer within 1.5 s"
        assert str(asking.exception()) == f"no NameServer could answer: {reason}"
