"""The route client for threads: a RouteClient on a loop and thread of its own."""

import functools
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from namesrv_client.client import RouteClient
from namesrv_client.queues.topic_queues import MessageQueue
from namesrv_client.routes.route import Route, RouteChange, RouteChanges
from namesrv_client.settings import ClientSettings
from namesrv_runtime.background_loop import BackgroundLoop, StoppedError

P = ParamSpec("P")
T = TypeVar("T")

# What a call may take beyond its own deadline before the caller gets its thread back.
_GRACE_SECONDS: Final = 5.0


class _ThreadClient(RouteClient):
    """A RouteClient, and what only its thread needs of it."""

    def __init__(self, settings: ClientSettings, loop: BackgroundLoop, **options: Any) -> None:
        super().__init__(settings, **options)
        self._loop = loop

    def socket_descriptors(self) -> list[int]:
        """The file descriptors of all connections, for the child of a fork to give up."""
        return self._session.socket_descriptors()

    def known_in_use(self, topic: str, max_stale: float | None) -> Route | None:
        """What `route` gives without asking anybody or changing anything."""
        return self._known(topic, max_stale) if self.is_in_use(topic) else None

    def _suspect(self, broker: str) -> None:
        # reports come from any thread
        self._loop.tell(super()._suspect, broker)


def _direct(verb: Callable[Concatenate[RouteClient, P], T]) -> "Callable[Concatenate[SyncRouteClient, P], T]":
    """A verb that any thread may call: it reads what is in memory."""

    @functools.wraps(verb)
    def call(self: "SyncRouteClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return verb(self._started(), *args, **kwargs)

    return call


def _waited(
    verb: Callable[Concatenate[RouteClient, P], Coroutine[Any, Any, T]],
) -> "Callable[Concatenate[SyncRouteClient, P], T]":
    """A verb that runs in the client's thread, and is waited for."""

    @functools.wraps(verb)
    def call(self: "SyncRouteClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._call(verb(self._started(), *args, **kwargs))

    return call


class SyncRouteClient:
    """A RouteClient behind a thread of its own: the same verbs, blocking, from any thread.

    What is in memory is answered without crossing over to that thread. A child that was forked after `start` has a
    client that is not started, and none of the parent's connections.
    """

    def __init__(self, settings: ClientSettings | str | Iterable[str], **options: Any) -> None:
        self.settings = ClientSettings.of(settings)
        self._options = options
        self._lock = threading.RLock()
        self._client: _ThreadClient | None = None
        # in the child of a fork: what the parent had
        self._parents: RouteClient | None = None
        self._background = BackgroundLoop(
            "namesrv-client",
            owner="the client",
            sockets=lambda: () if self._client is None else self._client.socket_descriptors(),
            in_child=self._forked,
        )

    def __repr__(self) -> str:
        return f"<SyncRouteClient [{self._client or 'not started'}]>"

    def start(self) -> None:
        """Start the thread and the client; does not wait for any server. A second call does nothing."""
        self._background.check_other_thread()
        with self._lock:
            if self._client is not None:
                return
            client = _ThreadClient(self.settings, self._background, **self._options)
            self._background.start()
            self._client = client
            try:
                self._call(client.__aenter__())
            except BaseException:
                self._end()
                raise

    def stop(self) -> None:
        """Save the snapshot, close all connections and end the thread, which must not be the caller's own.

        A second call does nothing.
        """
        self._background.check_other_thread()
        with self._lock:
            if self._client is None:
                return
            try:
                self._call(self._client.__aexit__(None, None, None))
            finally:
                self._end()

    def _end(self) -> None:
        self._client = None
        self._background.stop()

    def _forked(self) -> None:
        self._lock = threading.RLock()
        # kept: its transports would close their descriptors when they are collected, whoever has the numbers then
        self._parents, self._client = self._client, None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def route(self, topic: str, *, max_stale: float | None = None) -> Route:
        """The route of a topic. Raises RouteError as RouteClient.route."""
        client = self._started()
        return client.known_in_use(topic, max_stale) or self._call(client.route(topic, max_stale=max_stale))

    def forget(self, topic: str) -> None:
        """Do not poll a topic any more, and drop what is known of it."""
        client = self._started()
        self._call(_value(lambda: client.forget(topic)))

    def select_queue(self, topic: str, last_broker: str | None = None) -> MessageQueue:
        """The next queue for a message of this thread. Raises RouteError."""
        client = self._started()
        info = client.known_publish_info(topic) or self.publish_info(topic)
        return client.next_queue(info, threading.get_ident(), last_broker)

    def changes(self) -> Iterator[RouteChange]:
        """Every change from now until the client stops, each waited for; beyond 10,000 the oldest are lost."""
        changes = self._call(_value(self._started().changes))
        return iter(lambda: self._next(changes), None)

    def _next(self, changes: RouteChanges) -> RouteChange | None:
        try:
            return self._background.call(anext(changes, None), None)
        except StoppedError:
            return None

    refresh = _waited(RouteClient.refresh)
    publish_info = _waited(RouteClient.publish_info)
    subscribe_queues = _waited(RouteClient.subscribe_queues)
    cached = _direct(RouteClient.cached)
    is_in_use = _direct(RouteClient.is_in_use)
    on_change = _direct(RouteClient.on_change)
    report = _direct(RouteClient.report)
    reached = _direct(RouteClient.reached)
    broker_of = _direct(RouteClient.broker_of)
    master_of = _direct(RouteClient.master_of)
    find_broker = _direct(RouteClient.find_broker)

    @property
    def chosen_server(self) -> str | None:
        """The NameServer that is asked first."""
        return self._started().chosen_server

    @property
    def server_errors(self) -> Mapping[str, str]:
        """Why each NameServer failed the last time, by address."""
        return self._started().server_errors

    @property
    def name_servers_error(self) -> str | None:
        """Why the list of NameServers could not be read the last time; None if it could."""
        return self._started().name_servers_error

    @property
    def unreachable_brokers(self) -> list[str]:
        """Brokers that a probe should look at."""
        return self._started().unreachable_brokers

    def _started(self) -> _ThreadClient:
        client = self._client
        if client is None:
            raise RuntimeError("the client is not started")
        return client

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._background.call(work, self.settings.call_timeout_seconds + _GRACE_SECONDS)


async def _value(read: Callable[[], T]) -> T:
    return read()
