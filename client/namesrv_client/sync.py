"""The route client for threads: a RouteClient on an event loop in a background thread."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypedDict, Unpack

from namesrv_client.client import RouteClient
from namesrv_client.queues.topic_queues import MessageQueue
from namesrv_client.routes.route import Route, RouteChange, RouteChanges
from namesrv_client.routes.status import ClientStatus
from namesrv_client.settings import ClientSettings, default_client_name
from namesrv_remoting.aio.server_protocols import ServerProtocols
from namesrv_runtime.background_loop import StoppedError, Threaded, direct, waited
from namesrv_runtime.clock import Clock


class ClientOptions(TypedDict, total=False):
    """The keyword arguments of RouteClient."""

    on_connected: Callable[[str], object] | None
    on_disconnected: Callable[[str, str], object] | None
    on_ready: Callable[[], object] | None
    on_servers_changed: Callable[[tuple[str, ...]], object] | None
    clock: Clock | None
    protocols: ServerProtocols
    random_unit: Callable[[], float]
    shuffle: Callable[[list[str]], None]


class _ThreadClient(RouteClient):
    def __init__(
        self, settings: ClientSettings, call_soon: Callable[..., None], **options: Unpack[ClientOptions]
    ) -> None:
        super().__init__(settings, **options)
        self._call_soon = call_soon

    def socket_descriptors(self) -> list[int]:
        """The file descriptors of all connections, which a forked child closes."""
        return self._session.socket_descriptors()

    def known_in_use(self, topic: str, max_stale: float | None) -> Route | None:
        """The result of `route` if that needs no request and no change of state."""
        return self._known(topic, max_stale) if self.is_in_use(topic) else None

    def _suspect(self, broker: str) -> None:
        # Reports come from any thread.
        self._call_soon(super()._suspect, broker)


class SyncRouteChanges(Iterator[RouteChange]):
    """An iterator that threads may share: the loop of each thread over the changes ends by itself.

    A plain `iter(take, None)` would end for all threads at once, and drop a change that another thread is just taking.
    """

    def __init__(self, take: Callable[[], RouteChange | None]) -> None:
        """`take` returns the next change, or None when there is none any more."""
        self._take = take

    def __next__(self) -> RouteChange:
        """Wait for the next change. Raises StopIteration after the last one."""
        change = self._take()
        if change is None:
            raise StopIteration
        return change


class SyncRouteClient(Threaded[_ThreadClient]):
    """A RouteClient in a background thread: the same methods, blocking, for any thread.

    Cached routes are returned without a switch to the background thread. A child process that is forked after `start`
    has a client that is not started and has none of the parent's connections. Stopping saves the snapshot. Callbacks of
    `on_change` end with `stop`, and a forked child has none of them.
    """

    def __init__(self, settings: ClientSettings | str | Iterable[str], **options: Unpack[ClientOptions]) -> None:
        """Prepare a client without starting it. Raises ValueError and TypeError as RouteClient does."""
        self.settings = ClientSettings.of(settings)
        self._options = options
        # A client is made and dropped, so that wrong arguments raise here and not in start().
        RouteClient(self.settings, **options)
        super().__init__("namesrv-client", "the client", self.settings.call_timeout_seconds)

    def _made(self) -> _ThreadClient:
        settings = self.settings
        if "client_name" not in settings.model_fields_set:
            # The default names the process, and this one may be a child of the process that made the settings.
            settings = settings.model_copy(update={"client_name": default_client_name()})
        return _ThreadClient(settings, self._call_soon, **self._options)

    def route(self, topic: str, *, max_stale: float | None = None) -> Route:
        """The route of a topic. Raises RouteError as RouteClient.route."""
        client = self._started()
        return client.known_in_use(topic, max_stale) or self._call(client.route(topic, max_stale=max_stale))

    def forget(self, topic: str) -> None:
        """Stop polling a topic, and drop its route."""
        self._read(lambda client: client.forget(topic))

    def select_queue(self, topic: str, last_broker: str | None = None) -> MessageQueue:
        """The next queue for a message of this thread. Raises RouteError."""
        client = self._started()
        info = client.known_publish_info(topic) or self.publish_info(topic)
        return client.next_queue(info, threading.get_ident(), last_broker)

    def changes(self) -> Iterator[RouteChange]:
        """Wait for and yield every change until the client stops; a reader 10,000 changes behind loses the oldest.

        Threads that share an iterator get each change once.
        """
        changes = self._read(RouteClient.changes)
        return SyncRouteChanges(lambda: self._next(changes))

    def _next(self, changes: RouteChanges) -> RouteChange | None:
        # A change is taken on the loop: of several threads that wait for the same change, only one gets it.
        with contextlib.suppress(StoppedError, StopAsyncIteration):
            return self._wait_for(anext(changes), None)
        return changes.take()

    def refresh(self) -> bool:
        """The result of RouteClient.refresh. Many topics take many requests, and only each request has a time limit."""
        return self._wait_for(self._started().refresh(), None)

    def status(self) -> ClientStatus:
        """The result of RouteClient.status, also for a client that is not started."""
        client = self._inner
        if client is None:
            return ClientStatus(self.settings.client_name, is_started=False, is_ready=False)
        return client.status()

    publish_info = waited(RouteClient.publish_info)
    subscribe_queues = waited(RouteClient.subscribe_queues)
    known_publish_info = direct(RouteClient.known_publish_info)
    next_queue = direct(RouteClient.next_queue)
    cached = direct(RouteClient.cached)
    is_in_use = direct(RouteClient.is_in_use)
    on_change = direct(RouteClient.on_change)
    report = direct(RouteClient.report)
    reached = direct(RouteClient.reached)
    broker_of = direct(RouteClient.broker_of)
    master_of = direct(RouteClient.master_of)
    find_broker = direct(RouteClient.find_broker)

    @property
    def chosen_server(self) -> str | None:
        """The NameServer that gets requests first."""
        return self._started().chosen_server

    @property
    def server_errors(self) -> Mapping[str, str]:
        """The last failure of each NameServer, by address."""
        return self._started().server_errors

    @property
    def name_servers_error(self) -> str | None:
        """The error of the last read of the list of NameServers; None if it succeeded."""
        return self._started().name_servers_error

    @property
    def unreachable_brokers(self) -> list[str]:
        """Brokers that a probe should try to reach."""
        return self._started().unreachable_brokers
