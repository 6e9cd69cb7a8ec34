"""How does a threaded broker use the agent?

One background thread with one loop; every method may be called from any thread.
"""

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from namesrv_broker_agent.agent import BrokerAgent, MasterInfo
from namesrv_broker_agent.link import ServerState
from namesrv_broker_agent.settings import AgentSettings
from namesrv_broker_agent.topics import TopicChange
from namesrv_remoting.aio import loops
from namesrv_remoting.bodies.topic import TopicConfig

T = TypeVar("T")

# What a method may take beyond the agent's own deadlines before the caller gets its thread back.
_GRACE_SECONDS: Final = 5.0

# all that have been made, for the child of a fork
_agents: "weakref.WeakSet[SyncBrokerAgent]" = weakref.WeakSet()


class SyncBrokerAgent:
    """A BrokerAgent behind a thread of its own; the same arguments, the same verbs, blocking.

    Fork-safe: the thread belongs to the process that called `start`. A child that was forked afterwards has an agent
    that is not started, with none of the parent's connections; it may start its own.
    """

    def __init__(self, settings: AgentSettings, topics: Iterable[TopicConfig] = (), **options: Any) -> None:
        """Nothing is started yet. Raises ValueError as BrokerAgent does."""
        self.settings = settings
        self._topics = list(topics)
        self._options = options
        self._lock = threading.RLock()
        self._agent: BrokerAgent | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        # errors now rather than in start()
        BrokerAgent(settings.model_copy(update={"state_file": None}), self._topics)
        _agents.add(self)

    def __repr__(self) -> str:
        return f"<SyncBrokerAgent [{self._agent or 'not started'}]>"

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread and the agent; does not wait for any server. A second call does nothing."""
        with self._lock:
            if self._agent is not None:
                return
            loop = loops.new_event_loop()
            agent = BrokerAgent(self.settings, self._topics, **self._options)
            thread = threading.Thread(target=_run, args=(loop,), name="namesrv-broker-agent", daemon=True)
            thread.start()
            self._loop, self._agent, self._thread = loop, agent, thread
            try:
                self._call(agent.__aenter__())
            except BaseException:
                self._end()
                raise

    def stop(self) -> None:
        """Unregister from all servers within the settings' deadline, and end the thread. A second call does nothing."""
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
        self._call(agent.drain(), self.settings.client_poll_seconds + self.settings.stop_seconds)
        with self._lock:
            self._end()

    def _end(self) -> None:
        loop, thread = self._loop, self._thread
        self._agent = self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

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
        """Wait until that many servers know everything; how many do when the time is up."""
        return self._call(self._started().registered(count, timeout_seconds), timeout_seconds)

    def create_topic(self, topic: TopicConfig) -> None:
        """Add a topic. Raises ValueError."""
        self._call(self._started().create_topic(topic))

    def update_topic(self, topic: TopicConfig) -> None:
        """Replace a topic. Raises ValueError."""
        self._call(self._started().update_topic(topic))

    def delete_topic(self, name: str) -> None:
        """Remove a topic. Raises ValueError."""
        self._call(self._started().delete_topic(name))

    def set_perm(self, name: str, perm: int) -> None:
        """Change a topic's permission. Raises ValueError."""
        self._call(self._started().set_perm(name, perm))

    def replace_topics(self, topics: Iterable[TopicConfig]) -> TopicChange:
        """Make the topics these; what differed. Raises ValueError."""
        return self._call(self._started().replace_topics(topics))

    def promote(self, state_version: int | None = None) -> None:
        """Become the master."""
        self._call(self._started().promote(state_version), self.settings.answer_timeout_seconds)

    def demote(self, broker_id: int, state_version: int | None = None) -> None:
        """Become a slave with that id. Raises ValueError."""
        self._call(self._started().demote(broker_id, state_version), self.settings.answer_timeout_seconds)

    @property
    def servers(self) -> Mapping[str, ServerState]:
        """What is known of each NameServer, by address; empty while not started."""
        return {} if self._agent is None else self._call(_value(lambda: self._started().servers))

    @property
    def master(self) -> MasterInfo | None:
        """Of a slave: where its master is."""
        return None if self._agent is None else self._agent.master

    @property
    def topics(self) -> Mapping[str, TopicConfig]:
        """The topics by name."""
        return self._call(_value(lambda: self._started().topics))

    # -- crossing over ------------------------------------------------------------------------------------------------

    def _started(self) -> BrokerAgent:
        agent = self._agent
        if agent is None:
            raise RuntimeError("the agent is not started")
        return agent

    def _call(self, work: Coroutine[Any, Any, T], expected_seconds: float = 0.0) -> T:
        if self._loop is None or threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("not from the agent's own callbacks, and not before start()")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(expected_seconds + self.settings.connect_timeout_seconds + _GRACE_SECONDS)

    def _forget_parent(self) -> None:
        """In the child of a fork: the thread is not here, and its sockets are the parent's."""
        self._lock = threading.RLock()
        agent, self._agent, self._loop, self._thread = self._agent, None, None, None
        for descriptor in () if agent is None else agent.socket_descriptors():
            # while a copy is open here, no server would notice the parent's death
            with contextlib.suppress(OSError):
                os.close(descriptor)


async def _value(read: Callable[[], T]) -> T:
    return read()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    loop.run_until_complete(loop.shutdown_asyncgens())


def _after_fork_in_child() -> None:
    for agent in list(_agents):
        agent._forget_parent()  # noqa: SLF001 - its own module


os.register_at_fork(after_in_child=_after_fork_in_child)
