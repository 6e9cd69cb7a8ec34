"""The broker agent for threads: a BrokerAgent on a loop and thread of its own.

One background thread with one loop; every method may be called from any thread.
"""

import functools
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from namesrv_broker_agent.agent import BrokerAgent
from namesrv_broker_agent.dialects import MasterInfo
from namesrv_broker_agent.link import ServerState
from namesrv_broker_agent.settings import AgentSettings
from namesrv_remoting.bodies.topic import TopicConfig
from namesrv_runtime.background_loop import BackgroundLoop, StoppedError

__all__ = ["StoppedError", "SyncBrokerAgent"]

P = ParamSpec("P")
T = TypeVar("T")

# What a method may take beyond the agent's own deadlines before the caller gets its thread back.
_GRACE_SECONDS: Final = 5.0


class _ThreadAgent(BrokerAgent):
    """A BrokerAgent, and what only its thread needs of it."""

    def socket_descriptors(self) -> list[int]:
        """The file descriptors of all connections, for the child of a fork to close."""
        return [
            descriptor for link in (*self._links.values(), *self._leaving) for descriptor in link.socket_descriptors()
        ]

    def reconnect_except(self, descriptors: Collection[int]) -> None:
        """Replace all connections but these, also those that are being made: a child of a fork could not close them."""
        for link in self._links.values():
            if not link.has_one_of(descriptors):
                link.reconnect()


def _blocking(
    verb: Callable[Concatenate[BrokerAgent, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["SyncBrokerAgent", P], T]:
    """The verb for threads."""

    @functools.wraps(verb)
    def call(self: "SyncBrokerAgent", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._call(verb(self._started(), *args, **kwargs), self.settings.answer_timeout_seconds)

    return call


class SyncBrokerAgent:
    """A BrokerAgent behind a thread of its own; the same arguments, the same verbs, blocking.

    Stopped and started again, it has the topics that it had. Callbacks run in its thread and must not call it.

    Fork-safe: the thread belongs to the process that called `start`. A child that was forked afterwards has an agent
    that is not started, with none of the parent's connections; it may start its own.
    """

    def __init__(self, settings: AgentSettings, topics: Iterable[TopicConfig] = (), **options: Any) -> None:
        """Nothing is started yet. Raises ValueError as BrokerAgent does."""
        self.settings = settings
        # as they were at first, or when it was last stopped
        self._topics = list(topics)
        self._options = options
        # held by who starts or stops
        self._lock = threading.RLock()
        self._agent: _ThreadAgent | None = None
        self._background = BackgroundLoop(
            "namesrv-broker-agent",
            owner="the agent",
            sockets=lambda: () if self._agent is None else self._agent.socket_descriptors(),
            in_child=self._forget_parent,
            in_parent=self._reconnect_except,
        )
        # errors now rather than in start()
        BrokerAgent(settings.model_copy(update={"state_file": None}), self._topics, **options)

    def __repr__(self) -> str:
        return f"<SyncBrokerAgent [{self._agent or 'not started'}]>"

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread and the agent; does not wait for any server. A second call does nothing."""
        with self._lock:
            if self._agent is not None:
                return
            agent = _ThreadAgent(self.settings, self._topics, **self._options)
            self._background.start()
            self._agent = agent
            try:
                self._call(agent.__aenter__())
            except BaseException:
                self._end()
                raise

    def stop(self) -> None:
        """Unregister from all servers within the settings' deadline, and end the thread. A second call does nothing.

        What other threads wait for meanwhile ends with a StoppedError.
        """
        self._background.check_other_thread()
        with self._lock:
            if self._agent is None:
                return
            try:
                self._call(self._agent.stop(), self.settings.stop_seconds)
            finally:
                self._end()

    def drain(self) -> None:
        """Take the write permission away, wait one poll period of all clients, and stop. Blocks that long."""
        agent = self._started()
        try:
            self._call(agent.drain(), self.settings.client_poll_seconds + self.settings.stop_seconds)
        except StoppedError:
            # another thread was not that patient
            return
        with self._lock:
            if self._agent is agent:
                self._end()

    def _end(self) -> None:
        agent, self._agent = self._agent, None
        if agent is not None:
            self._topics = list(agent.topics.values())
        self._background.stop()

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    # -- the agent's verbs --------------------------------------------------------------------------------------------

    def registered(self, count: int | None = None, timeout_seconds: float = 30.0) -> int:
        """Wait until that many servers know everything; how many do. Raises TimeoutError as BrokerAgent does."""
        return self._call(self._started().registered(count, timeout_seconds), timeout_seconds)

    create_topic = _blocking(BrokerAgent.create_topic)
    update_topic = _blocking(BrokerAgent.update_topic)
    delete_topic = _blocking(BrokerAgent.delete_topic)
    set_perm = _blocking(BrokerAgent.set_perm)
    replace_topics = _blocking(BrokerAgent.replace_topics)
    promote = _blocking(BrokerAgent.promote)
    demote = _blocking(BrokerAgent.demote)

    @property
    def servers(self) -> Mapping[str, ServerState]:
        """What is known of each NameServer, by address; empty while not started."""
        self._background.check_other_thread()
        agent = self._agent
        return {} if agent is None else self._call(_value(lambda: agent.servers))

    @property
    def master(self) -> MasterInfo | None:
        """Of a slave: where its master is."""
        agent = self._agent
        return None if agent is None else agent.master

    @property
    def topics(self) -> Mapping[str, TopicConfig]:
        """The topics by name."""
        return self._started().topics

    # -- crossing over ------------------------------------------------------------------------------------------------

    def _started(self) -> BrokerAgent:
        self._background.check_other_thread()
        agent = self._agent
        if agent is None:
            raise RuntimeError("the agent is not started")
        return agent

    def _call(self, work: Coroutine[Any, Any, T], expected_seconds: float = 0.0) -> T:
        return self._background.call(work, expected_seconds + self.settings.connect_timeout_seconds + _GRACE_SECONDS)

    # -- forks --------------------------------------------------------------------------------------------------------

    def _reconnect_except(self, descriptors: frozenset[int]) -> None:
        """In the parent: the child has copies of all other connections, and would hide our death from their servers."""
        if self._agent is not None:
            self._agent.reconnect_except(descriptors)

    def _forget_parent(self) -> None:
        """In the child: the topics stay, the agent is the parent's."""
        self._lock = threading.RLock()
        agent, self._agent = self._agent, None
        if agent is not None:
            self._topics = list(agent.topics.values())


async def _value(read: Callable[[], T]) -> T:
    return read()
