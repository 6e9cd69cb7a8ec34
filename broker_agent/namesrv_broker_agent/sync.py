"""The broker agent for threads: a BrokerAgent on a loop and thread of its own.

One background thread with one loop; every method may be called from any thread.
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypedDict, Unpack

from namesrv_broker_agent.agent import BrokerAgent
from namesrv_broker_agent.link.state import ServerState
from namesrv_broker_agent.own_broker import BrokerState
from namesrv_broker_agent.protocols import MasterInfo
from namesrv_broker_agent.settings import AgentSettings, check_settings
from namesrv_broker_agent.status import AgentStatus
from namesrv_remoting.aio.server_protocols import ServerProtocols
from namesrv_remoting.bodies.topic import TopicConfig
from namesrv_remoting.headers import NotifyMinBrokerIdChangeRequestHeader
from namesrv_runtime.background_loop import StoppedError, Threaded, waited
from namesrv_runtime.clock import Clock

__all__ = ["StoppedError", "SyncBrokerAgent"]


class AgentOptions(TypedDict, total=False):
    """The keyword arguments of BrokerAgent."""

    state: Callable[[], BrokerState] | None
    on_connected: Callable[[str], object] | None
    on_disconnected: Callable[[str, str], object] | None
    on_ready: Callable[[], object] | None
    on_servers_changed: Callable[[tuple[str, ...]], object] | None
    on_master_changed: Callable[[MasterInfo], None] | None
    on_min_broker_id_changed: Callable[[NotifyMinBrokerIdChangeRequestHeader], None] | None
    clock: Clock | None
    protocols: ServerProtocols
    random_unit: Callable[[], float]


class _ThreadAgent(BrokerAgent):
    def __init__(
        self,
        settings: AgentSettings,
        topics: Iterable[TopicConfig],
        state_version: int,
        **options: Unpack[AgentOptions],
    ) -> None:
        super().__init__(settings, topics, **options)
        if state_version > self.state_version:
            self._topics.bump(state_version)

    @property
    def state_version(self) -> int:
        """The term of the broker's role under a controller."""
        return self._topics.data_version.state_version

    def socket_descriptors(self) -> list[int]:
        """The file descriptors of all connections, which a forked child closes."""
        return self._links.socket_descriptors()

    def reconnect_except(self, descriptors: Collection[int]) -> None:
        """Replace all connections except these, because a forked child has not closed its copies of the others."""
        self._links.reconnect_except(descriptors)


class SyncBrokerAgent(Threaded[_ThreadAgent]):
    """A BrokerAgent in a thread of its own, with the same arguments and methods, which block.

    Stopping unregisters from all servers; topics and role are kept until the next start. Callbacks run in the agent's
    thread, and must call no method of the agent but `status`.

    The class is fork-safe: the thread belongs to the process that called `start`. A child that is forked later has an
    agent that is not started and has none of the parent's connections; the child may start the agent.
    """

    def __init__(
        self, settings: AgentSettings, topics: Iterable[TopicConfig] = (), **options: Unpack[AgentOptions]
    ) -> None:
        """Prepare an agent without starting it. Raises ValueError and TypeError as BrokerAgent does.

        The state file is read by `start`, which raises TopicStateError and OSError.
        """
        check_settings(settings)
        self.settings = settings
        # the topics of the constructor, or of the last stop
        self._topics = list(topics)
        # the role of the settings, or of the last stop
        self._broker_id, self._state_version = settings.broker_id, 0
        # the process in which the agent was last stopped, or failed to start
        self._stopped_in: int | None = None
        self._options = options
        seconds = settings.response_timeout_seconds + settings.connect_timeout_seconds
        super().__init__("namesrv-broker-agent", "the agent", seconds, settings.stop_seconds)
        # An agent without a state file is made and dropped, so that wrong arguments raise here and not in start().
        BrokerAgent(settings.model_copy(update={"state_file": None}), self._topics, **options)

    def _made(self) -> _ThreadAgent:
        settings = self.settings.model_copy(update={"broker_id": self._broker_id})
        return _ThreadAgent(settings, self._topics, self._state_version, **self._options)

    def drain(self) -> None:
        """Remove the write permission, wait one poll interval of the clients, and stop. Blocks that long.

        An agent that has stopped has left already. Raises RuntimeError if this process never started the agent.
        """
        self._check_other_thread()
        # The field is read once, because another thread may stop the agent at any moment.
        agent = self._inner
        if agent is None:
            if self._stopped_in != os.getpid():
                raise RuntimeError(f"{self._owner} is not started")
            return
        try:
            self._call(agent.drain(), self.settings.client_poll_seconds + self.settings.stop_seconds)
        except StoppedError:
            # Another thread has stopped the agent.
            return
        with self._lock:
            if self._inner is agent:
                self._end()

    def registered(self, *, count: int | None = None, timeout_seconds: float = 30.0) -> int:
        """Wait until `count` servers have accepted all topics; return their number. Raises as BrokerAgent does."""
        waiting = self._started().registered(count=count, timeout_seconds=timeout_seconds)
        return self._call(waiting, timeout_seconds)

    create_topic = waited(BrokerAgent.create_topic)
    update_topic = waited(BrokerAgent.update_topic)
    delete_topic = waited(BrokerAgent.delete_topic)
    set_perm = waited(BrokerAgent.set_perm)
    replace_topics = waited(BrokerAgent.replace_topics)
    promote = waited(BrokerAgent.promote)
    demote = waited(BrokerAgent.demote)

    @property
    def servers(self) -> Mapping[str, ServerState]:
        """The state of the link to each NameServer, by address; empty while not started."""
        self._check_other_thread()
        agent = self._inner
        return {} if agent is None else agent.servers

    def status(self) -> AgentStatus:
        """The result of BrokerAgent.status, also for an agent that is not started; callbacks may call this, too."""
        agent, settings = self._inner, self.settings
        if agent is not None:
            return agent.status()
        return AgentStatus(
            cluster_name=settings.cluster_name,
            broker_name=settings.broker_name,
            broker_id=self._broker_id,
            broker_addr=settings.broker_addr,
            is_started=False,
            is_ready=False,
            topics=len(self._topics),
            data_version=0,
        )

    @property
    def master(self) -> MasterInfo | None:
        """The master of a slave; None for a master."""
        agent = self._inner
        return None if agent is None else agent.master

    @property
    def broker_id(self) -> int:
        """The current broker id; 0 is a master."""
        agent = self._inner
        return self._broker_id if agent is None else agent.broker_id

    @property
    def name_servers_error(self) -> str | None:
        """The error of the last read of the list of NameServers; None if it succeeded, or while not started."""
        agent = self._inner
        return None if agent is None else agent.name_servers_error

    @property
    def topics(self) -> Mapping[str, TopicConfig]:
        """The topics by name. Raises RuntimeError while the agent is not started."""
        return self._started().topics

    def _started(self) -> _ThreadAgent:
        # The agent's thread, and so a callback, may call none of the methods, also none that would not block.
        self._check_other_thread()
        return super()._started()

    def _end(self) -> None:
        # This process is noted before the agent is forgotten: a drain in another thread that then finds no agent has to
        # see that the agent was stopped.
        self._stopped_in = os.getpid()
        super()._end()

    def _forget(self) -> None:
        if self._inner is not None:
            self._topics = list(self._inner.topics.values())
            self._broker_id, self._state_version = self._inner.broker_id, self._inner.state_version
        super()._forget()

    def _forked_child(self, given_up: frozenset[int]) -> None:
        # The child holds copies of all other connections; if this process died, their servers would not notice.
        if self._inner is not None:
            self._inner.reconnect_except(given_up)
