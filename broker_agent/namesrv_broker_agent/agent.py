"""The broker agent: keeps one broker registered with every NameServer."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Self, TypeVar

from namesrv_broker_agent.dialects import BrokerIdentity, BrokerState, MasterInfo
from namesrv_broker_agent.link import ServerLink, ServerState, Status, report_bug
from namesrv_broker_agent.settings import AgentSettings
from namesrv_broker_agent.status import AgentStatus
from namesrv_broker_agent.topics import TopicChange, TopicTable
from namesrv_remoting.aio.server_protocols import PROCESS_PROTOCOLS, ServerProtocols
from namesrv_remoting.bodies.topic import TopicConfig
from namesrv_remoting.codes import MASTER_ID, Permission, RequestCode
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import BadRequestError
from namesrv_remoting.headers import NotifyMinBrokerIdChangeRequestHeader
from namesrv_runtime.clock import Clock, SystemClock, timeout_on
from namesrv_runtime.name_servers import NameServerList
from namesrv_runtime.server_events import ServerEvents

T = TypeVar("T")

logger: Final = logging.getLogger("namesrv_agent")


class BrokerAgent:
    """Keeps one broker registered with every NameServer, as an async context manager.

    Entering starts it and does not wait for any server; `registered()` does. Each server has a connection and a rhythm
    of its own: one that is dead, slow or black-holed delays nothing and nobody. Leaving the block unregisters.

    All methods belong to the loop that entered it; see SyncBrokerAgent for threads.
    """

    def __init__(  # noqa: PLR0913 - by keyword, and optional
        self,
        settings: AgentSettings,
        topics: Iterable[TopicConfig] = (),
        *,
        state: Callable[[], BrokerState] | None = None,
        on_connected: Callable[[str], object] | None = None,
        on_disconnected: Callable[[str, str], object] | None = None,
        on_ready: Callable[[], object] | None = None,
        on_servers_changed: Callable[[tuple[str, ...]], object] | None = None,
        on_master_changed: Callable[[MasterInfo], None] | None = None,
        on_min_broker_id_changed: Callable[[NotifyMinBrokerIdChangeRequestHeader], None] | None = None,
        clock: Clock | None = None,
        protocols: ServerProtocols = PROCESS_PROTOCOLS,
        random_unit: Callable[[], float] = random.random,
    ) -> None:
        """Nothing is sent yet. Raises ValueError for topics that cannot be, TopicStateError for a damaged file."""
        self.settings = settings
        self._clock = clock or SystemClock()
        self._table = TopicTable(
            topics, None if settings.state_file is None else Path(settings.state_file), self._clock.wall
        )
        self._identity = BrokerIdentity(settings, self._table, state)
        self._events = ServerEvents(
            logging.getLogger("namesrv_agent.callback"),
            on_connected=on_connected,
            on_disconnected=on_disconnected,
            on_ready=on_ready,
            on_servers_changed=on_servers_changed,
        )
        self._on_master_changed = on_master_changed
        self._on_min_broker_id_changed = on_min_broker_id_changed
        self._protocols = protocols
        self._random_unit = random_unit
        self._links: dict[str, ServerLink] = {}
        # servers that are being left, and by which task: they are no longer in the list, or all are
        self._leaving: dict[ServerLink, asyncio.Task[None]] = {}
        # wakes those who wait for registrations
        self._progress = asyncio.Event()
        # of a slave: where its master is, as most servers say; never forgotten because one does not know
        self.master: MasterInfo | None = None
        self._table_lock = asyncio.Lock()
        self._name_servers = NameServerList(
            settings.name_servers,
            clock=self._clock,
            on_change=self._name_servers_changed,
            refresh_seconds=settings.refresh_seconds,
        )
        # the broker is registered with all servers
        self._is_ready = False
        self._watch: asyncio.Task[None] | None = None
        self._is_stopped = True
        self._stopping: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        registered = sum(link.state.status == "registered" for link in self._links.values())
        return (
            f"<BrokerAgent [{self.settings.broker_name}:{self._identity.broker_id} at {self.settings.broker_addr} | "
            f"{registered} of {len(self._links)} servers | {self._table!r}]>"
        )

    async def __aenter__(self) -> Self:
        if not self._is_stopped:
            raise RuntimeError("the agent is started already")
        self._is_stopped = False
        self._events.open()
        self._identity.is_writable = True
        # of a life before this one; the same servers are no change that would be told
        self._name_servers_changed(self._name_servers.addresses)
        self._name_servers.looked.clear()
        self._watch = asyncio.create_task(self._name_servers.run(), name="namesrv-agent name servers")
        self._watch.add_done_callback(report_bug)
        try:
            # a name or a URL that hangs does not hold up the broker; the servers join when they are known
            async with timeout_on(self._clock, self.settings.connect_timeout_seconds):
                await self._name_servers.looked.wait()
        except TimeoutError:
            logger.warning("name servers from %s: no answer yet", self._name_servers.source)
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Unregister from all servers in parallel, within `stop_seconds`, and close.

        A second call waits for the first; it goes on when its caller is cancelled.
        """
        if not self._is_stopped:
            self._is_stopped = True
            self._events.close()
            self._stopping = asyncio.ensure_future(self._stop())
        if self._stopping is not None:
            await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
        self._name_servers_changed(())
        if self._leaving:
            await asyncio.wait(self._leaving.values())

    async def drain(self) -> None:
        """Leave without a failed send: no write permission anywhere, one poll period of all clients, then `stop`."""
        if self._is_stopped:
            return
        self._identity.is_writable = False
        async with self._table_lock:
            self._table.bump_for_this_life()
        await self._register_again()
        await self._clock.sleep(self.settings.client_poll_seconds)
        await self.stop()

    async def registered(self, *, count: int | None = None, timeout_seconds: float = 30.0) -> int:
        """Wait until that many servers (None: all) know everything; how many do.

        Raises:
            ValueError: `count` is less than 1, or more than there are servers.
            TimeoutError: they did not in time; it names those that are missing.
        """
        try:
            async with timeout_on(self._clock, timeout_seconds):
                self._check_count(count)
                while self._settled() < (max(1, len(self._links)) if count is None else count):
                    self._progress.clear()
                    await self._progress.wait()
                    # the list of servers may be another one
                    self._check_count(count)
        except TimeoutError:
            missing = [
                f"{link.address} ({link.state.last_error or 'no answer yet'})"
                for link in self._links.values()
                if not link.settled.is_set()
            ]
            why = ", ".join(missing) or self._name_servers.last_error or "no name servers yet"
            raise TimeoutError(f"not registered within {timeout_seconds:g} s: {why}") from None
        return self._settled()

    def _check_count(self, count: int | None) -> None:
        if count is not None and count < 1:
            raise ValueError(f"count={count}: must be 1 or more")
        # an empty list is not known yet
        if count is not None and self._links and count > len(self._links):
            servers = f"{len(self._links)} name server{'' if len(self._links) == 1 else 's'}"
            raise ValueError(f"count={count}: the agent has {servers} ({', '.join(self._links)})")

    def _settled(self) -> int:
        return sum(link.settled.is_set() for link in self._links.values())

    @property
    def servers(self) -> Mapping[str, ServerState]:
        """What is known of each NameServer, by address."""
        return {address: link.status() for address, link in tuple(self._links.items())}

    def status(self) -> AgentStatus:
        """All that is known of the broker and its servers at this moment, from any thread."""
        servers = tuple(self.servers.values())
        return AgentStatus(
            cluster_name=self.settings.cluster_name,
            broker_name=self.settings.broker_name,
            broker_id=self.broker_id,
            broker_addr=self.settings.broker_addr,
            is_started=not self._is_stopped,
            is_ready=self._is_ready,
            topics=len(self._table.topics),
            data_version=self._table.data_version.counter,
            master=self.master,
            name_servers_error=self.name_servers_error,
            servers=servers,
        )

    @property
    def name_servers_error(self) -> str | None:
        """Why the list of NameServers could not be read the last time; None if it could."""
        return self._name_servers.last_error

    @property
    def broker_id(self) -> int:
        """0 for a master."""
        return self._identity.broker_id

    @property
    def topics(self) -> Mapping[str, TopicConfig]:
        """The topics by name."""
        return self._table.topics

    async def create_topic(self, topic: TopicConfig) -> None:
        """Add a topic, and tell all servers at once. Raises ValueError if it exists or cannot be."""
        await self._change(lambda: self._table.create(topic))

    async def update_topic(self, topic: TopicConfig) -> None:
        """Replace a topic, and tell all servers at once. Raises ValueError if it does not exist or cannot be."""
        await self._change(lambda: self._table.update(topic))

    async def delete_topic(self, name: str) -> None:
        """Remove a topic, and tell all servers at once. Raises ValueError if it does not exist."""
        await self._change(lambda: self._table.delete(name))

    async def set_perm(self, name: str, perm: Permission) -> None:
        """Change a topic's permission (4 read, 2 write). Raises ValueError."""
        await self._change(lambda: self._table.set_perm(name, perm))

    async def replace_topics(self, topics: Iterable[TopicConfig]) -> TopicChange:
        """Make the topics these; what differed. Raises ValueError, and then nothing has changed."""
        wanted = list(topics)
        return await self._change(lambda: self._table.replace_all(wanted))

    async def _change(self, change: Callable[[], TopicChange]) -> TopicChange:
        def tell(done: TopicChange) -> None:
            if done.changed or done.deleted:
                for link in self._links.values():
                    link.topics_changed(done)

        return await self._keep(change, tell)

    async def _keep(self, change: Callable[[], T], then: Callable[[T], None]) -> T:
        """All of it or nothing: whoever is cancelled meanwhile waits until it is done."""

        async def work() -> T:
            async with self._table_lock:
                # with a state file a change is on disk before anybody is told
                done = change() if self.settings.state_file is None else await asyncio.to_thread(change)
                then(done)
            return done

        task = asyncio.ensure_future(work())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            if not task.cancelled():
                # fetched, so that asyncio does not report it
                task.exception()
            raise

    async def promote(self, state_version: int | None = None) -> None:
        """Become the master (id 0) at the same address; `state_version` is the new term, where there are terms."""
        await self._take_id(MASTER_ID, state_version)

    async def demote(self, broker_id: int, state_version: int | None = None) -> None:
        """Become a slave with that id. Raises ValueError for an id that no slave can have."""
        if not 0 < broker_id < 1 << 63:
            raise ValueError(f"not the id of a slave: {broker_id} (must be 1 or more)")
        await self._take_id(broker_id, state_version)

    async def _take_id(self, broker_id: int, state_version: int | None) -> None:
        def take(_: None) -> None:
            self._identity.broker_id = broker_id

        await self._keep(lambda: self._table.bump(state_version), take)
        await self._register_again()

    async def _register_again(self) -> None:
        """Tell all servers everything, and wait for those that can be reached; the others register when back."""
        for link in self._links.values():
            link.register_again()
        reachable = [link for link in self._links.values() if link.state.status == "registered"]
        with suppress(TimeoutError):
            async with timeout_on(self._clock, self.settings.answer_timeout_seconds):
                await asyncio.gather(*(link.settled.wait() for link in reachable))

    def _name_servers_changed(self, addresses: tuple[str, ...]) -> None:
        is_another = set(addresses) != self._links.keys()
        for address in addresses:
            if address not in self._links:
                link = ServerLink(
                    address,
                    self._identity,
                    clock=self._clock,
                    on_registered=self._registered,
                    on_status=self._status_changed,
                    on_request=self._on_request,
                    protocols=self._protocols,
                    random_unit=self._random_unit,
                )
                self._links[address] = link
                link.start()
        for address in [address for address in self._links if address not in addresses]:
            link = self._links.pop(address)
            leaving = asyncio.ensure_future(link.leave(self.settings.stop_seconds))
            self._leaving[link] = leaving
            leaving.add_done_callback(lambda _, link=link: self._leaving.pop(link))  # type: ignore[misc]  # bound now
        self._progress.set()
        if is_another:
            self._events.servers_changed(addresses)
        self._look_whether_ready()

    def _status_changed(self, link: ServerLink, before: Status) -> None:
        state = link.state
        if state.status == "registered":
            self._events.connected(link.address)
        elif before == "registered":
            self._events.disconnected(link.address, state.last_error or "no longer in the list of name servers")
        self._look_whether_ready()

    def _look_whether_ready(self) -> None:
        statuses = {link.state.status for link in self._links.values()}
        was_ready, self._is_ready = self._is_ready, statuses == {"registered"}
        if self._is_ready and not was_ready:
            self._events.ready()

    def _registered(self) -> None:
        self._progress.set()
        if self._identity.broker_id == MASTER_ID:
            self.master = None
            return
        # what a server said that cannot be reached any more is old news
        reachable = (link.master for link in self._links.values() if link.state.status == "registered")
        named = Counter(master for master in reachable if master is not None)
        for most, times in named.most_common(1):
            if self.master is None or times > named[self.master]:
                self.master = most
                self._events.call(self._on_master_changed, most)

    def _on_request(self, command: RemotingCommand) -> None:
        if command.code != RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE:
            return
        if self._identity.broker_id != MASTER_ID:
            for link in self._links.values():
                link.ask_for_master()
        if self._on_min_broker_id_changed is not None:
            try:
                notice = NotifyMinBrokerIdChangeRequestHeader.from_ext(command.ext_fields)
            except BadRequestError as error:
                logger.warning("malformed NOTIFY_MIN_BROKER_ID_CHANGE: %s", error)
            else:
                self._events.call(self._on_min_broker_id_changed, notice)
