"""Threads use the client as they like, and start and stop it in any order."""

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from namesrv_client import (
    BrokerAddress,
    ClientSettings,
    MessageQueue,
    RouteChange,
    RouteUnavailableError,
    SyncRouteClient,
    TopicNotFoundError,
)
from namesrv_runtime.background_loop import StoppedError
from tests.support.broker import Broker
from tests.support.daemon import Daemon
from tests.support.guard import GUARD_SECONDS
from tests.support.peer import Peer, until


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A NameServer in a process of its own, with two brokers, for all tests here."""
    with Daemon(tmp_path_factory.mktemp("data")) as daemon, Peer(daemon.listening().address) as peer:
        Broker(name="broker-a", addr="10.0.0.1:10911").register(peer)
        Broker(name="broker-a", broker_id=1, addr="10.0.0.11:10911").register(peer)
        Broker(name="broker-b", addr="10.0.0.2:10911").register(peer)
        yield daemon


def settings_of(namesrv: Daemon, **values: Any) -> ClientSettings:
    """A server that has just started may deny topics here."""
    host, port = namesrv.address
    return ClientSettings(**{"name_servers": f"{host}:{port}", "warm_up_seconds": 0.0, **values})


@pytest.fixture
def client(namesrv: Daemon) -> Iterator[SyncRouteClient]:
    """One that is started."""
    with SyncRouteClient(settings_of(namesrv)) as started:
        yield started


def client_threads() -> list[threading.Thread]:
    """Those that are alive."""
    return [thread for thread in threading.enumerate() if thread.name == "namesrv-client"]


# -- start and stop ---------------------------------------------------------------------------------------------------


def test_a_thread_while_it_is_started(namesrv: Daemon) -> None:
    """And none afterwards, nor a connection; starting and stopping twice does nothing more."""
    client = SyncRouteClient(settings_of(namesrv))
    assert [] == client_threads()
    client.start()
    client.start()
    assert 1 == len(client_threads())
    assert ["broker-a", "broker-b"] == list(client.route("orders").brokers)
    assert "<SyncRouteClient [<RouteClient [" in repr(client)
    client.stop()
    client.stop()

    assert [] == client_threads()
    assert "<SyncRouteClient [not started]>" == repr(client)


VERBS: dict[str, Callable[[SyncRouteClient], object]] = {
    "route": lambda client: client.route("orders"),
    "cached": lambda client: client.cached("orders"),
    "refresh": lambda client: client.refresh(),
    "publish_info": lambda client: client.publish_info("orders"),
    "select_queue": lambda client: client.select_queue("orders"),
    "subscribe_queues": lambda client: client.subscribe_queues("orders"),
    "report": lambda client: client.report("broker-a", 0.1, failed=True),
    "reached": lambda client: client.reached("broker-a"),
    "unreachable_brokers": lambda client: client.unreachable_brokers,
    "broker_of": lambda client: client.broker_of(MessageQueue("orders", "broker-a", 0)),
    "master_of": lambda client: client.master_of("broker-a"),
    "find_broker": lambda client: client.find_broker("broker-a", 1, only_this=False),
    "on_change": lambda client: client.on_change(print),
    "changes": lambda client: client.changes(),
    "forget": lambda client: client.forget("orders"),
    "is_in_use": lambda client: client.is_in_use("orders"),
    "chosen_server": lambda client: client.chosen_server,
    "server_errors": lambda client: client.server_errors,
    "name_servers_error": lambda client: client.name_servers_error,
}


@pytest.mark.parametrize("is_stopped", [False, True], ids=["before start", "after stop"])
@pytest.mark.parametrize("verb", VERBS)
def test_use_while_it_is_not_started(namesrv: Daemon, verb: str, *, is_stopped: bool) -> None:
    """A clear error."""
    client = SyncRouteClient(settings_of(namesrv))
    if is_stopped:
        client.start()
    client.stop()

    with pytest.raises(RuntimeError, match=r"^the client is not started$"):
        VERBS[verb](client)


def test_a_start_that_fails_leaves_nothing(namesrv: Daemon) -> None:
    """An argument that the client does not know."""
    client = SyncRouteClient(settings_of(namesrv), colour="red")

    with pytest.raises(TypeError, match="colour"):
        client.start()

    assert [] == client_threads()
    assert "<SyncRouteClient [not started]>" == repr(client)


def test_stopping_ends_what_other_threads_wait_for(tmp_path: Path) -> None:
    """They get an error instead of waiting for a client that is gone."""
    with Daemon(tmp_path) as daemon:
        client = SyncRouteClient(
            settings_of(daemon.listening(), call_timeout_seconds=60.0, attempt_timeout_seconds=60.0)
        )
        client.start()
        # it takes connections and answers nothing
        daemon.send_signal(signal.SIGSTOP)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(client.route, "orders")
            until(lambda: client._client is not None and client._client._keeper._asking)
            client.stop()

            with pytest.raises((RouteUnavailableError, StoppedError), match=r"closed|stopped"):
                waiting.result(GUARD_SECONDS)


def test_iterating_over_changes_ends_with_the_client(namesrv: Daemon) -> None:
    """Every change since the iterator was made, each waited for; a forgotten topic is new when it is wanted again."""
    client = SyncRouteClient(settings_of(namesrv))
    client.start()
    with ThreadPoolExecutor(1) as pool:
        topics = pool.submit(lambda changes: [change.topic for change in changes], client.changes())
        client.route("orders")
        assert client.is_in_use("orders")
        client.forget("orders")
        assert not client.is_in_use("orders")
        client.route("orders")
        client.stop()

        assert ["orders", "orders"] == topics.result(GUARD_SECONDS)


# -- threads ----------------------------------------------------------------------------------------------------------


def test_all_verbs(client: SyncRouteClient) -> None:
    """Each says what the client in the loop says."""
    assert ["broker-a", "broker-b"] == list(client.route("orders").brokers)
    assert client.route("orders") == client.cached("orders")
    assert ({}, None) == (client.server_errors, client.name_servers_error)
    assert client.settings.name_servers == client.chosen_server
    assert client.cached("bills") is None
    with pytest.raises(TopicNotFoundError, match="topic none does not exist"):
        client.route("none")
    assert 16 == client.publish_info("orders").count == len(client.subscribe_queues("orders"))
    assert ("10.0.0.1:10911", None) == (client.master_of("broker-a"), client.master_of("stranger"))
    assert BrokerAddress("broker-a", 1, "10.0.0.11:10911") == client.find_broker("broker-a", 1, only_this=True)
    assert "broker-a" == client.broker_of(MessageQueue("orders", "broker-a", 0))
    assert client.refresh()
    client.report("broker-a", 0.1)
    client.report("broker-a", 0.1, failed=True)
    client.reached("broker-a")
    assert [] == client.unreachable_brokers


def test_what_is_in_memory_is_answered_without_the_thread(client: SyncRouteClient) -> None:
    """It may be busy."""
    client.route("orders")
    client.select_queue("orders")
    released = threading.Event()
    client._background.tell(released.wait, GUARD_SECONDS)
    try:
        assert "orders" == client.route("orders").topic
        assert "orders" == client.route("orders", max_stale=60.0).topic
        assert {"broker-b"} == {client.select_queue("orders", "broker-a").broker_name for _ in range(10)}
        assert client.master_of("broker-b") is not None
        client.report("broker-a", 0.1, failed=True)
    finally:
        released.set()


def test_a_route_that_is_too_old_is_asked_for(client: SyncRouteClient) -> None:
    """As in the loop."""
    before = client.route("orders")

    after = client.route("orders", max_stale=0.0)

    assert before.confirmed_at < after.confirmed_at


def test_every_thread_goes_round_the_queues(client: SyncRouteClient) -> None:
    """Whatever the others do."""
    barrier = threading.Barrier(8)

    def picks() -> list[MessageQueue]:
        barrier.wait(GUARD_SECONDS)
        return [client.select_queue("orders") for _ in range(16)]

    with ThreadPoolExecutor(8) as pool:
        for found in [pool.submit(picks) for _ in range(8)]:
            assert 16 == len(set(found.result(GUARD_SECONDS)))


def test_many_threads_ask_for_many_topics(client: SyncRouteClient) -> None:
    """Known and unknown ones; each gets its own answer."""

    def ask(number: int) -> str:
        try:
            return client.route(("orders", "bills", "none")[number % 3]).topic
        except TopicNotFoundError:
            return "not found"

    with ThreadPoolExecutor(16) as pool:
        assert ["orders", "bills", "not found"] * 100 == list(pool.map(ask, range(300)))


def test_failed_sends_refresh_the_route(namesrv: Daemon) -> None:
    """As soon as a thread says so, long before the next poll."""
    with Peer(namesrv.address) as peer, SyncRouteClient(settings_of(namesrv, poll_seconds=3600.0)) as client:
        broker = Broker(name="broker-x", addr="10.0.0.9:10911", topics=("x1", "x2"))
        broker.register(peer)
        client.route("x1")
        broker.unregister(peer)

        client.report("broker-x", 0.1, failed=True)

        until(lambda: client.route("x1").confirmed_absent_since is not None)


# -- callbacks --------------------------------------------------------------------------------------------------------


def test_changes_are_told_in_the_clients_thread(namesrv: Daemon) -> None:
    """A callback that uses the client gets what is in memory; what would wait for its own thread is an error."""
    told: list[tuple[str, str, str]] = []
    happened = threading.Event()
    with SyncRouteClient(settings_of(namesrv)) as client:

        def tell(change: RouteChange) -> None:
            client.route("orders")
            for use in (client.refresh, client.stop):
                try:
                    use()
                except RuntimeError as error:
                    told.append((change.topic, threading.current_thread().name, str(error)))
            happened.set()

        end = client.on_change(tell)
        client.route("orders")
        assert happened.wait(GUARD_SECONDS)
        end()
        client.route("bills")

    assert [
        ("orders", "namesrv-client", "cannot be called from the client's own callbacks: it would deadlock")
    ] * 2 == told


def test_a_snapshot_is_written_when_it_is_stopped(namesrv: Daemon, tmp_path: Path) -> None:
    """And read when it is started; it takes no server."""
    snapshot = tmp_path / "routes.json"
    with SyncRouteClient(settings_of(namesrv, snapshot_file=snapshot)) as client:
        client.route("orders")

    with SyncRouteClient(settings_of(namesrv, name_servers="127.0.0.1:1", snapshot_file=snapshot)) as client:
        found = client.route("orders")
        assert ("disk", ["broker-a", "broker-b"]) == (found.source, list(found.brokers))
        assert "orders" == client.select_queue("orders").topic
