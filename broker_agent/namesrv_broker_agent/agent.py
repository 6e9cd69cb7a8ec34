"""The broker agent: keeps one broker registered with every NameServer."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, Self, TypeVar

from namesrv_broker_agent.link.link import report_bug
from namesrv_broker_agent.link.links import ServerLinks
from namesrv_broker_agent.link.state import ServerState
from namesrv_broker_agent.own_broker import BrokerState, OwnBroker
from namesrv_broker_agent.protocols import MasterInfo
from namesrv_broker_agent.settings import AgentSettings, check_settings
from namesrv_broker_agent.status import AgentStatus
from namesrv_broker_agent.topics import BrokerTopics, TopicChange
from namesrv_remoting.aio.server_protocols import PROCESS_PROTOCOLS, ServerProtocols
from namesrv_remoting.bodies.topic import TopicConfig
from namesrv_remoting.codes import MASTER_ID, RequestCode
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import BadRequestError
from namesrv_remoting.headers import NotifyMinBrokerIdChangeRequestHeader
from namesrv_runtime.clock import Clock, SystemClock, timeout_on
from namesrv_runtime.name_servers import NameServerList
from namesrv_runtime.server_events import ServerEvents, check_plain
from namesrv_runtime.threads import in_thread

T = TypeVar("T")

logger: Final = logging.getLogger("namesrv_agent")


class BrokerAgent:
    """Keeps one broker registered with every NameServer, as an async context manager.

    Entering the context starts the agent without waiting for any server; `registered()` waits. Each server has a
    connection and heartbeats of its own: a server that is dead, slow or unreachable delays no other server. Leaving the
    context unregisters the broker.

    With a state file, a change of topics or of the role raises OSError if the file cannot be written; then nothing has
    changed.

    All methods belong to the loop that entered the context; see SyncBrokerAgent for threads.
    """

    def __init__(  # noqa: PLR0913 - optional keyword arguments
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
        """Read the state file.

        Raises:
            ValueError: a topic is invalid.
            TypeError: an argument has the wrong type.
            TopicStateError: the state file is damaged.
            OSError: the state file cannot be read or written.
        """
        check_settings(settings)
        check_plain("state", state)
        self._clock = clock or SystemClock()
        self._topics = BrokerTopics(
            topics, None if settings.state_file is None else Path(settings.state_file), self._clock.wall
        )
        self._broker = OwnBroker(settings, self._topics, state)
        self._events = ServerEvents(
            logging.getLogger("namesrv_agent.callback"),
            on_connected=on_connected,
            on_disconnected=on_disconnected,
            on_ready=on_ready,
            on_servers_changed=on_servers_changed,
        )
        check_plain("on_master_changed", on_master_changed)
        check_plain("on_min_broker_id_changed", on_min_broker_id_changed)
        self._on_master_changed = on_master_changed
        self._on_min_broker_id_changed = on_min_broker_id_changed
        self._links = ServerLinks(
            self._broker,
            self._events,
            clock=self._clock,
            on_registered=self._update_master,
            on_request=self._on_request,
            protocols=protocols,
            random_unit=random_unit,
        )
        # for a slave: the master that most servers report; a server that knows no master does not clear this field
        self.master: MasterInfo | None = None
        # held from a change of the topics or the role until all links have the change, so that changes keep their order
        self._topics_lock = asyncio.Lock()
        self._name_servers = NameServerList(
            settings.name_servers,
            clock=self._clock,
            on_change=self._links.follow,
            logger=logging.getLogger("namesrv_agent.connection"),
            refresh_seconds=settings.refresh_seconds,
            is_urgent=self._links.has_unreachable,
        )
        # the task that keeps the list of NameServers up to date; each start has a task of its own
        self._watch: asyncio.Task[None] | None = None
        # the task of the last stop
        self._stopping: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return (
            f"<BrokerAgent [{self.settings.broker_name}:{self._broker.broker_id} at {self.settings.broker_addr} | "
            f"{self._links.registered_count()} of {len(self._links)} servers | {self._topics!r}]>"
        )

    async def __aenter__(self) -> Self:
        if self._is_started:
            raise RuntimeError("the agent is already started")
        if self._stopping is not None and not self._stopping.done():
            # The caller of `stop` was cancelled; the rest of the stop would end the links of this start.
            await asyncio.wait([self._stopping])
        self._events.open()
        self._broker.is_writable = True
        # An agent may start again in another event loop, and a lock belongs to the loop in which a task waited for it.
        if not self._topics_lock.locked():
            self._topics_lock = asyncio.Lock()
        # After a restart of this agent, its links begin with the addresses of the last list. If the next list has the
        # same addresses, no event is sent.
        self._links.open(self._name_servers.addresses)
        self._name_servers.open()
        self._watch = asyncio.create_task(self._name_servers.run(), name="namesrv-agent name servers")
        self._watch.add_done_callback(report_bug)
        try:
            # A hanging name or URL delays the start by no more than this; servers are added once they are known.
            if not await self._name_servers.looked_within(self.settings.connect_timeout_seconds):
                logger.warning("name servers from %s: no answer yet", self._name_servers.source)
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Unregister from all servers in parallel, within `stop_seconds`, and close all connections.

        A second call waits for the first. Stopping continues when the caller is cancelled.
        """
        if self._is_started:
            self._events.close()
            self._stopping = asyncio.ensure_future(self._stop())
        if self._stopping is not None:
            await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
        await self._links.leave_all()

    async def drain(self) -> None:
        """Leave without failed sends: remove the write permission, wait one poll interval of the clients, then stop.

        A cancelled drain leaves the broker registered without write permission, since the broker is about to leave:
        drain again, or stop. If a change is being written to a slow state file when the drain is cancelled, servers
        receive the permission of each topic only with the topic's next registration. An agent that has stopped has left
        already. Raises RuntimeError if the agent was never started.
        """
        if not self._is_started:
            if self._stopping is None:
                raise RuntimeError("the agent is not started")
            return
        watch = self._watch
        self._broker.is_writable = False
        async with self._topics_lock:
            self._topics.bump_in_memory()
        self._links.register_again()
        await self._links.wait_accepted()
        await self._clock.sleep(self.settings.client_poll_seconds)
        if self._watch is watch:
            # Each start has another task: the agent was not stopped and started again meanwhile.
            await self.stop()

    async def registered(self, *, count: int | None = None, timeout_seconds: float = 30.0) -> int:
        """Wait until `count` servers (None: all) have accepted all topics; return the number that have.

        Raises:
            ValueError: `count` is less than 1, or larger than the number of servers.
            TimeoutError: fewer servers accepted in time; the message names the missing servers.
            RuntimeError: the agent is not started.
        """
        if not self._is_started:
            raise RuntimeError("the agent is not started")
        try:
            async with timeout_on(self._clock, timeout_seconds):
                await self._links.wait_settled(count)
        except TimeoutError:
            why = ", ".join(self._links.unsettled()) or self._name_servers.last_error or "no name servers yet"
            raise TimeoutError(f"not registered within {timeout_seconds:g} s: {why}") from None
        return self._links.settled_count()

    @property
    def settings(self) -> AgentSettings:
        """The settings of the broker and the agent."""
        return self._broker.settings

    @property
    def _is_started(self) -> bool:
        return self._events.is_open

    @property
    def servers(self) -> Mapping[str, ServerState]:
        """The state of the link to each NameServer, by address."""
        return {link.address: link.reported_state() for link in self._links}

    def status(self) -> AgentStatus:
        """The state of the broker and its servers; any thread may call this."""
        servers = tuple(self.servers.values())
        return AgentStatus(
            cluster_name=self.settings.cluster_name,
            broker_name=self.settings.broker_name,
            broker_id=self.broker_id,
            broker_addr=self.settings.broker_addr,
            is_started=self._is_started,
            is_ready=self._links.is_ready,
            topics=len(self._topics.topics),
            data_version=self._topics.data_version.counter,
            master=self.master,
            name_servers_error=self.name_servers_error,
            servers=servers,
        )

    @property
    def name_servers_error(self) -> str | None:
        """The error of the last read of the list of NameServers; None if it succeeded."""
        return self._name_servers.last_error

    @property
    def broker_id(self) -> int:
        """The current broker id; 0 is a master."""
        return self._broker.broker_id

    @property
    def topics(self) -> Mapping[str, TopicConfig]:
        """The topics by name."""
        return self._topics.topics

    async def create_topic(self, topic: TopicConfig) -> None:
        """Add a topic, and send it to all servers at once. Raises ValueError if the topic exists or is invalid."""
        await self._change(lambda: self._topics.create(topic))

    async def update_topic(self, topic: TopicConfig) -> None:
        """Replace a topic, and send it to all servers. Raises ValueError if the topic is unknown or invalid."""
        await self._change(lambda: self._topics.update(topic))

    async def delete_topic(self, name: str) -> None:
        """Remove a topic from all servers at once. Raises ValueError if the topic is unknown."""
        await self._change(lambda: self._topics.delete(name))

    async def set_perm(self, name: str, perm: int) -> None:
        """Change a topic's permission, a `Permission` or its number (4 read, 2 write). Raises ValueError."""
        await self._change(lambda: self._topics.set_perm(name, perm))

    async def replace_topics(self, topics: Iterable[TopicConfig]) -> TopicChange:
        """Replace all topics; return the difference. Raises ValueError, and then nothing has changed."""
        wanted = list(topics)
        return await self._change(lambda: self._topics.replace_all(wanted))

    async def _change(self, change: Callable[[], TopicChange]) -> TopicChange:
        def send(done: TopicChange) -> None:
            if done.changed or done.deleted:
                self._links.topics_changed(done)

        return await self._keep(change, send)

    async def _keep(self, change: Callable[[], T], then: Callable[[T], None]) -> T:
        """Make a change and then call `then`, completely or not at all: a cancelled caller waits for both."""

        async def work() -> T:
            async with self._topics_lock:
                # With a state file, a change is on disk before any server receives it.
                done = change() if self.settings.state_file is None else await in_thread(change)
                then(done)
            return done

        task = asyncio.ensure_future(work())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            if not task.cancelled():
                # The exception is fetched so that asyncio does not report it.
                task.exception()
            raise

    async def promote(self, state_version: int | None = None) -> None:
        """Become the master (id 0) at the same address; `state_version` is the new term under a controller.

        Raises ValueError for a term that is not a number from 0 to 2^63 - 1.
        """
        await self._take_id(MASTER_ID, state_version)

    async def demote(self, broker_id: int, state_version: int | None = None) -> None:
        """Become a slave with this id. Raises ValueError for an id below 1 or beyond 63 bits, or as `promote`.

        Raises TypeError for an id that is not an int.
        """
        # True is an int, too.
        if type(broker_id) is not int:
            raise TypeError(f"broker_id {broker_id!r} is not an integer")
        if not 0 < broker_id < 1 << 63:
            raise ValueError(f"not the id of a slave: {broker_id} (must be 1 or more)")
        await self._take_id(broker_id, state_version)

    async def _take_id(self, broker_id: int, state_version: int | None) -> None:
        def take(_: None) -> None:
            self._broker.broker_id = broker_id
            self._links.register_again()

        await self._keep(lambda: self._topics.bump(state_version), take)
        await self._links.wait_accepted()

    def _update_master(self) -> None:
        if self._broker.broker_id == MASTER_ID:
            self.master = None
            return
        # Only reports of servers that are still reachable count; the report of another server may be out of date. The
        # known master stays if as many servers report it as another one.
        reports = Counter(link.master for link in self._links.registered() if link.master is not None)
        if not reports:
            return
        ((most_reported, count),) = reports.most_common(1)
        if self.master is None or count > reports[self.master]:
            self.master = most_reported
            self._events.call(self._on_master_changed, most_reported)

    def _on_request(self, command: RemotingCommand) -> None:
        if command.code != RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE:
            return
        if self._broker.broker_id != MASTER_ID:
            self._links.ask_for_master()
        if self._on_min_broker_id_changed is not None:
            try:
                notice = NotifyMinBrokerIdChangeRequestHeader.from_ext(command.ext_fields)
            except BadRequestError as error:
                logger.warning("malformed NOTIFY_MIN_BROKER_ID_CHANGE: %s", error)
            else:
                self._events.call(self._on_min_broker_id_changed, notice)
