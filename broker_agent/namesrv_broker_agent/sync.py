"""How does a threaded broker use the agent?

One background thread with one loop; every method may be called from any thread.
"""

import asyncio
import concurrent.futures
import contextlib
import os
import threading
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

# those that are started, for forks
_started: "set[SyncBrokerAgent]" = set()


class StoppedError(RuntimeError):
    """Another thread has stopped the agent meanwhile."""


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
        # held, for a moment, by who hands work to the loop, and by who takes the loop away
        self._gate = threading.Lock()
        self._agent: BrokerAgent | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        # what the child of a fork knew how to close
        self._descriptors: frozenset[int] = frozenset()
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
            agent = BrokerAgent(self.settings, self._topics, **self._options)
            loop = loops.new_event_loop()
            thread = threading.Thread(target=_run, args=(loop,), name="namesrv-broker-agent", daemon=True)
            thread.start()
            self._loop, self._agent, self._thread = loop, agent, thread
            _started.add(self)
            try:
                self._call(agent.__aenter__())
            except BaseException:
                self._end()
                raise

    def stop(self) -> None:
        """Unregister from all servers within the settings' deadline, and end the thread. A second call does nothing.

        What other threads wait for meanwhile ends with a StoppedError.
        """
        self._refuse_own_thread()
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
        with self._gate:
            agent, loop, thread = self._agent, self._loop, self._thread
            self._agent = self._loop = self._thread = None
            _started.discard(self)
        if agent is not None and loop is not None and thread is not None:
            self._topics = list(agent.topics.values())
            # after all that was handed in, so that nobody waits for what is never done
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

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
        self._refuse_own_thread()
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
        self._refuse_own_thread()
        agent = self._agent
        if agent is None:
            raise RuntimeError("the agent is not started")
        return agent

    def _refuse_own_thread(self) -> None:
        if threading.current_thread() is self._thread:
            raise RuntimeError("not from the agent's own callbacks: its thread would wait for itself")

    def _call(self, work: Coroutine[Any, Any, T], expected_seconds: float = 0.0) -> T:
        with self._gate:
            if self._loop is None:
                work.close()
                raise StoppedError("the agent was stopped")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        seconds = expected_seconds + self.settings.connect_timeout_seconds + _GRACE_SECONDS
        try:
            return future.result(seconds)
        except concurrent.futures.CancelledError:
            raise StoppedError("the agent was stopped") from None
        except TimeoutError:
            future.cancel()
            raise

    # -- forks --------------------------------------------------------------------------------------------------------

    def _before_fork(self) -> None:
        agent = self._agent
        try:
            self._descriptors = frozenset() if agent is None else frozenset(agent.socket_descriptors())
        except (AttributeError, RuntimeError):
            # the agent's thread changed something in this very moment: then none of them counts as closed
            self._descriptors = frozenset()

    def _after_fork_in_parent(self) -> None:
        with self._gate:
            if self._loop is not None and self._agent is not None:
                self._loop.call_soon_threadsafe(self._agent.reconnect_except, self._descriptors)

    def _after_fork_in_child(self) -> None:
        """The thread is not here, and its sockets are the parent's."""
        _started.discard(self)
        self._lock, self._gate = threading.RLock(), threading.Lock()
        agent, self._agent, self._loop, self._thread = self._agent, None, None, None
        if agent is None:
            return
        self._topics = list(agent.topics.values())
        # While a copy is open here, no server would notice the parent's death. The numbers stay taken, so that whoever
        # closes them once more, as a destructor may, hits nothing of the child's.
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in agent.socket_descriptors():
            with contextlib.suppress(OSError):
                os.dup2(nothing, descriptor, inheritable=False)
        os.close(nothing)


async def _value(read: Callable[[], T]) -> T:
    return read()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


def _each(verb: Callable[[SyncBrokerAgent], None]) -> Callable[[], None]:
    def for_each() -> None:
        for agent in list(_started):
            verb(agent)

    return for_each


os.register_at_fork(
    before=_each(SyncBrokerAgent._before_fork),  # noqa: SLF001 - its own module
    after_in_parent=_each(SyncBrokerAgent._after_fork_in_parent),  # noqa: SLF001
    after_in_child=_each(SyncBrokerAgent._after_fork_in_child),  # noqa: SLF001
)
