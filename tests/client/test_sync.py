"""The client for threads: all methods, start and stop, callbacks."""

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from namesrv_client import BrokerAddress, ClientSettings, MessageQueue, RouteChange, SyncRouteClient
from namesrv_client.sync import SyncRouteChanges
from namesrv_runtime import background_loop
from tests.support.daemon import Daemon
from tests.support.fake_clock import GUARD_SECONDS


def settings_of(two_brokers: Daemon, **values: Any) -> ClientSettings:
    """Settings of a client that trusts a server that has just started."""
    return ClientSettings(**{"name_servers": two_brokers.where, "warm_up_seconds": 0.0, **values})


@pytest.fixture
def client(two_brokers: Daemon) -> Iterator[SyncRouteClient]:
    """A started client."""
    with SyncRouteClient(settings_of(two_brokers)) as started:
        yield started


def client_threads() -> list[threading.Thread]:
    """Live threads of clients."""
    return [thread for thread in threading.enumerate() if thread.name == "namesrv-client"]


# each method with its result
VERBS: list[tuple[Callable[[SyncRouteClient], object], object]] = [
    (lambda client: list(client.route("orders").brokers), ["broker-a", "broker-b"]),
    (lambda client: client.cached("bills"), None),
    (lambda client: client.refresh(), True),
    (lambda client: client.publish_info("orders").count, 16),
    (lambda client: client.known_publish_info("orders") == client.publish_info("orders"), True),
    (lambda client: client.next_queue(client.publish_info("orders"), 7, "broker-a").broker_name, "broker-b"),
    (lambda client: client.select_queue("orders", "broker-a").broker_name, "broker-b"),
    (lambda client: len(client.subscribe_queues("orders")), 16),
    (lambda client: client.report("broker-a", 0.1, failed=True), None),
    (lambda client: client.reached("broker-a"), None),
    (lambda client: client.unreachable_brokers, []),
    (lambda client: client.broker_of(MessageQueue("orders", "broker-a", 0)), "broker-a"),
    (lambda client: client.master_of("broker-a"), "10.0.0.1:10911"),
    (lambda client: client.find_broker("broker-a", 1, only_this=True), BrokerAddress("broker-a", 1, "10.0.0.11:10911")),
    (lambda client: callable(client.on_change(print)), True),
    (lambda client: client.changes() is None, False),
    (lambda client: client.is_in_use("orders"), True),
    (lambda client: client.chosen_server == client.settings.name_servers, True),
    (lambda client: client.server_errors, {}),
    (lambda client: client.name_servers_error, None),
    (lambda client: client.forget("orders"), None),
]


def test_methods_of_a_started_client(two_brokers: Daemon) -> None:
    """Every method returns the asyncio client's result; starting or stopping twice is harmless."""
    client = SyncRouteClient(settings_of(two_brokers))

    def check_not_started() -> None:
        assert (client_threads(), repr(client)) == ([], "<SyncRouteClient [not started]>")
        for verb, _ in VERBS:
            with pytest.raises(RuntimeError, match=r"^the client is not started$"):
                verb(client)

    check_not_started()
    client.start()
    client.start()
    assert len(client_threads()) == 1
    assert "<SyncRouteClient [<RouteClient [" in repr(client)
    assert [expected for _, expected in VERBS] == [verb(client) for verb, _ in VERBS]
    client.stop()
    client.stop()
    check_not_started()


def test_threads_may_share_an_iterator_of_changes(two_brokers: Daemon) -> None:
    """Each change goes to one of the threads, and all of them wait until the client ends.

    A forgotten topic is new when it is used again.
    """
    client = SyncRouteClient(settings_of(two_brokers))
    client.start()
    with ThreadPoolExecutor(2) as pool:
        changes = client.changes()
        assert isinstance(changes, SyncRouteChanges)
        topics = [pool.submit(lambda: [change.topic for change in changes]) for _ in range(2)]
        for _ in range(20):
            client.route("orders")
            client.forget("orders")
        client.stop()

        assert [topic for each in topics for topic in each.result(GUARD_SECONDS)] == ["orders"] * 20


def test_thread_that_takes_the_last_change_gets_it_after_others_have_ended() -> None:
    """A thread that finds no change any more does not end the iterator for one that is taking the last."""
    last = RouteChange("orders", None, None)
    is_taking, others_ended = threading.Event(), threading.Event()
    left = [last]

    def take() -> RouteChange | None:
        if not left:
            return None
        change = left.pop()
        is_taking.set()
        others_ended.wait(GUARD_SECONDS)
        return change

    changes = SyncRouteChanges(take)
    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(list, changes)
        assert is_taking.wait(GUARD_SECONDS)
        assert not list(changes)
        others_ended.set()

        assert taken.result(GUARD_SECONDS) == [last]


def test_interrupted_wait_takes_no_change(client: SyncRouteClient) -> None:
    """A caller that goes on after Ctrl-C gets the next change."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    changes = client.changes()
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            next(changes)
    finally:
        signal.signal(signal.SIGALRM, before)
    client.route("orders")
    client.stop()

    assert [change.topic for change in changes] == ["orders"]


def test_cached_routes_need_no_thread(client: SyncRouteClient) -> None:
    """Cached routes are returned while the client's thread is busy, unless they are too old."""
    client.route("orders")
    client.select_queue("orders")
    released = threading.Event()
    client._call_soon(released.wait, GUARD_SECONDS)
    try:
        assert client.route("orders").topic == "orders"
        old = client.route("orders", max_stale=60.0)
        assert {client.select_queue("orders", "broker-a").broker_name for _ in range(10)} == {"broker-b"}
        assert client.master_of("broker-b") is not None
        client.report("broker-a", 0.1, failed=True)
    finally:
        released.set()
    # but not one that is too old
    assert old.confirmed_at < client.route("orders", max_stale=0.0).confirmed_at


def test_change_callbacks_run_in_the_clients_thread(two_brokers: Daemon) -> None:
    """A callback may use cached routes."""
    calls: list[tuple[str, str]] = []
    happened = threading.Event()
    with SyncRouteClient(settings_of(two_brokers)) as client:

        def callback(change: RouteChange) -> None:
            calls.append((client.route(change.topic).topic, threading.current_thread().name))
            happened.set()

        end = client.on_change(callback)
        client.route("orders")
        assert happened.wait(GUARD_SECONDS)
        end()
        client.route("bills")

    assert calls == [("orders", "namesrv-client")]


def test_refresh_may_take_longer_than_a_call(client: SyncRouteClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refresh of many topics sends many requests, each with the time of a call, as that of a RouteClient does."""
    client.route("orders")
    monkeypatch.setattr(background_loop, "_GRACE_SECONDS", 0.0)
    monkeypatch.setattr(client, "_call_seconds", 0.0)

    assert client.refresh()
