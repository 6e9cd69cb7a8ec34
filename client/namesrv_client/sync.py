"""The route client for threads: a RouteClient on a loop and thread of its own."""

import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from namesrv_client.client import BrokerAddress, RouteClient
from namesrv_client.queues.topic_queues import MessageQueue, PublishInfo
from namesrv_client.routes.listeners import RouteChanges
from namesrv_client.routes.route import Route, RouteChange
from namesrv_client.settings import ClientSettings
from namesrv_runtime.background_loop import BackgroundLoop, StoppedError

T = TypeVar("T")

# What a call may take beyond its own deadline before the caller gets its thread back.
_GRACE_SECONDS: Final = 5.0


class _ThreadClient(RouteClient):
    """A RouteClient, and what only its thread needs of it."""

    def socket_descriptors(self) -> list[int]:
        """The file descriptors of all connections, for the child of a fork to give up."""
        return self._session.socket_descriptors()

    def report_from(self, loop: BackgroundLoop, broker: str, latency_seconds: float, *, failed: bool) -> None:
        """As `report`, from any thread."""
        self._take_report(broker, latency_seconds, failed=failed)
        if failed:
            loop.tell(self._suspect, broker)


class SyncRouteChanges:
    """An iterator of changes, from the moment it was made until the client stops; the next one is waited for."""

    def __init__(self, changes: RouteChanges, loop: BackgroundLoop) -> None:
        self._changes = changes
        self._loop = loop

    def __repr__(self) -> str:
        return f"<SyncRouteChanges [{self._changes!r}]>"

    def __iter__(self) -> Self:
        """Itself."""
        return self

    def __next__(self) -> RouteChange:
        """The next change, as soon as there is one."""
        try:
            change = self._loop.call(anext(self._changes, None), None)
        except StoppedError:
            change = None
        if change is None:
            raise StopIteration
        return change


class SyncRouteClient:
    """A RouteClient behind a thread of its own: the same verbs, blocking, from any thread.

    What is in memory is answered without crossing over to that thread. A child that was forked after `start` has a
    client that is not started, and none of the parent's connections.
    """

    def __init__(self, settings: ClientSettings | str | Iterable[str], **options: Any) -> None:
        """Nothing is started yet."""
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

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread and the client; does not wait for any server. A second call does nothing."""
        self._background.check_other_thread()
        with self._lock:
            if self._client is not None:
                return
            client = _ThreadClient(self.settings, **self._options)
            self._background.start()
            self._client = client
            try:
                self._call(client.__aenter__())
            except BaseException:
                self._end()
                raise

    def stop(self) -> None:
        """Save the snapshot, close all connections and end the thread. A second call does nothing.

        Raises:
            RuntimeError: called from one of the client's own callbacks, whose thread cannot wait for its own end.
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
        """Start."""
        self.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    # -- the client's verbs -------------------------------------------------------------------------------------------

    def route(self, topic: str, *, max_stale: float | None = None) -> Route:
        """The route of a topic. Raises RouteError as RouteClient.route."""
        client = self._started()
        limit = self.settings.cache_ttl_seconds if max_stale is None else max_stale
        known = client.cached(topic)
        if known is not None and (limit is None or known.age <= limit) and client.is_in_use(topic):
            return known
        return self._call(client.route(topic, max_stale=max_stale))

    def cached(self, topic: str) -> Route | None:
        """What is known of a topic, without asking anybody."""
        return self._started().cached(topic)

    def is_in_use(self, topic: str) -> bool:
        """Whether the topic is kept fresh."""
        return self._started().is_in_use(topic)

    def forget(self, topic: str) -> None:
        """Do not poll a topic any more, and drop what is known of it."""
        client = self._started()
        self._call(_value(lambda: client.forget(topic)))

    @property
    def chosen_server(self) -> str | None:
        """The NameServer that is asked first."""
        return self._started().chosen_server

    @property
    def server_errors(self) -> Mapping[str, str]:
        """Why each NameServer failed the last time, by address."""
        client = self._started()
        return self._call(_value(lambda: client.server_errors))

    @property
    def name_servers_error(self) -> str | None:
        """Why the list of NameServers could not be read the last time; None if it could."""
        return self._started().name_servers_error

    def refresh(self) -> bool:
        """Ask for what changed, now; whether a server answered."""
        return self._call(self._started().refresh())

    def publish_info(self, topic: str) -> PublishInfo:
        """The queues to write to. Raises RouteError."""
        return self._call(self._started().publish_info(topic))

    def select_queue(self, topic: str, last_broker: str | None = None) -> MessageQueue:
        """The next queue for a message of this thread. Raises RouteError."""
        client = self._started()
        info = client.known_publish_info(topic) or self.publish_info(topic)
        return client.next_queue(info, threading.get_ident(), last_broker)

    def subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """The queues to read. Raises RouteError."""
        return self._call(self._started().subscribe_queues(topic))

    def report(self, broker: str, latency_seconds: float, *, failed: bool = False) -> None:
        """Say how a send went. Waits for nobody."""
        self._started().report_from(self._background, broker, latency_seconds, failed=failed)

    def reached(self, broker: str) -> None:
        """A probe of the application's own got through to the broker."""
        self._started().reached(broker)

    @property
    def unreachable_brokers(self) -> list[str]:
        """Brokers that a probe should look at."""
        return self._started().unreachable_brokers

    def broker_of(self, queue: MessageQueue) -> str:
        """The broker group that has a queue now."""
        return self._started().broker_of(queue)

    def master_of(self, broker_name: str) -> str | None:
        """Where to write: the master's address."""
        return self._started().master_of(broker_name)

    def find_broker(self, broker_name: str, broker_id: int, *, only_this: bool) -> BrokerAddress | None:
        """Where to read."""
        return self._started().find_broker(broker_name, broker_id, only_this=only_this)

    def on_change(self, callback: Callable[[RouteChange], None]) -> Callable[[], None]:
        """Call back with every change, in the client's thread; call what is returned to end that."""
        return self._started().on_change(callback)

    def changes(self) -> SyncRouteChanges:
        """Every change from now on, to iterate over; a reader that falls behind by 10,000 loses the oldest."""
        return SyncRouteChanges(self._call(_value(self._started().changes)), self._background)

    def _started(self) -> _ThreadClient:
        client = self._client
        if client is None:
            raise RuntimeError("the client is not started")
        return client

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._background.call(work, self.settings.call_timeout_seconds + _GRACE_SECONDS)


async def _value(read: Callable[[], T]) -> T:
    return read()
