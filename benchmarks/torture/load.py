"""Brokers and clients of a world, and probes that watch the servers' tables; all times are on the monotonic clock.

They behave as Apache's do: brokers stay registered by doing something again and again, clients pull a route and change
servers when a connection dies.
"""

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from benchmarks.torture.sessions import LOST, Dialect, Place, Session, View

# RocketMQ's defaults (120 s and 30 s) divided by 12: the expiry of brokers, and the time from one registration of a
# broker to the next
EXPIRY_SECONDS: Final = 10.0
REGISTRATION_SECONDS: Final = 2.5
QUEUES: Final = 8
# Clients pull often, so that each pull also samples the routes; Java's clients pull every 30 s.
_PULL_SECONDS: Final = 0.2
_PROBE_SECONDS: Final = 0.1
# longest wait of a probe for a connection and a response together
_PROBE_PATIENCE: Final = 1.0


class Broker(ABC):
    """A master that all servers are to know."""

    # the protocol of the servers, which clients and probes speak, too
    dialect: ClassVar[Dialect[Any]]

    def __init__(self, number: int, place: Place, servers: Sequence[str]) -> None:
        self.name = f"broker-{number}"
        self.place = place
        self.servers = servers
        self.queues = QUEUES
        # time at which the last start was complete: the broker has tried each server; None before
        self.registered_at: float | None = None
        # time at which the broker was killed or fell silent; None while the broker lives
        self.died_at: float | None = None
        # server -> time of the first registration of this life that the server acknowledged
        self.acknowledged: dict[str, float] = {}
        self._tasks: list[asyncio.Task[None]] = []

    @abstractmethod
    async def start(self) -> None:
        """Register, and stay registered from then on."""

    @abstractmethod
    async def change(self) -> None:
        """Change the queues of the common topic."""

    @abstractmethod
    async def fall_silent(self) -> None:
        """Stay registered no longer, with open connections; return when the expiry has begun."""

    @abstractmethod
    async def restart(self) -> None:
        """Close the connections of the old process, and register those of a new one."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""

    def die(self) -> None:
        """Die: all registrations end, and all connections close."""
        self.rest()
        self.died_at = time.monotonic()
        self.close()

    def started(self, *work: Coroutine[Any, Any, None]) -> None:
        """Note that the start is complete, and run what keeps the broker registered."""
        self.registered_at = time.monotonic()
        self._tasks = [asyncio.create_task(each) for each in work]

    def silenced(self, *last: asyncio.Task[None]) -> None:
        """Note that the expiry has begun; `last` are registrations that are still in flight."""
        self.died_at = time.monotonic()
        self._tasks += last

    def rest(self) -> None:
        """End this life of the broker without a word to a server."""
        for task in self._tasks:
            task.cancel()
        self.registered_at, self.acknowledged = None, {}


# -- clients and probes -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Pulls:
    """Results of all clients."""

    count: int = 0
    # pulls without a route
    failed: int = 0
    # routes that lacked a live broker
    wrong: int = 0
    # longest time after the death of a broker at which a route still contained the broker
    dead_seconds: float = 0.0


class Client:
    """Pulls a route from one server, and from the next server after a closed connection or a late response."""

    def __init__(
        self,
        dialect: Dialect[Any],
        place: Place,
        servers: Sequence[str],
        brokers: Sequence[Broker],
        patience: float = 1.0,
    ) -> None:
        self.place = place
        # addresses of the servers, in the order of their use
        self.servers = servers
        self._dialect = dialect
        # sessions with the servers; the first session is in use
        self._sessions = [Session(dialect, place, server, patience) for server in servers]
        self._brokers = brokers

    async def run(self, pulls: Pulls) -> None:
        """Pull until cancelled."""
        await asyncio.sleep(random.uniform(0, _PULL_SECONDS))
        while True:
            began = time.monotonic()
            await self.pull(pulls)
            await asyncio.sleep(max(0.0, began + _PULL_SECONDS - time.monotonic()))

    async def pull(self, pulls: Pulls) -> None:
        """Pull once, and count the result."""
        began = time.monotonic()
        pulls.count += 1
        try:
            response = await self._sessions[0].request(self._dialect.pull)
        except LOST:
            self._sessions.append(self._sessions.pop(0))
            pulls.failed += 1
        else:
            self._judge(self._dialect.view_of(response), began, pulls)

    def close(self) -> None:
        """Close all connections; the next pull opens another."""
        for session in self._sessions:
            session.close()

    def restart(self) -> None:
        """Use the first server again."""
        self._sessions.sort(key=lambda session: self.servers.index(session.target))

    def _judge(self, view: View | None, began: float, pulls: Pulls) -> None:
        if view is None:
            pulls.failed += 1
            return
        living = (each for each in self._brokers if each.died_at is None)
        due = {each.name for each in living if each.registered_at is not None and each.registered_at < began}
        if due - view.keys():
            pulls.wrong += 1
        for each in self._brokers:
            if each.died_at is not None and each.name in view:
                pulls.dead_seconds = max(pulls.dead_seconds, began - each.died_at)


class Probe:
    """Watches the table of one server from the server's own host, so that no fault of the network disturbs it."""

    def __init__(self, dialect: Dialect[Any], place: Place, brokers: Sequence[Broker]) -> None:
        self._dialect = dialect
        self._server = place[1]
        self._session = Session(dialect, place, self._server, _PROBE_PATIENCE)
        self._brokers = brokers
        # number of live brokers that were removed, and the longest time for which one was missing
        self.evicted = 0
        self.longest_missing = 0.0
        # time since which the table has every live broker with its queues; None while a broker or queue is missing
        self.true_since: float | None = None
        # time at which the last look with a response began
        self.looked_at = 0.0
        # brokers or error of the last look, for messages
        self._last = ""
        # True while the table has a dead broker
        self.has_dead = False
        # name of a missing broker -> time since which the broker is missing
        self._missing: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<Probe [{self._server} | {'true' if self.true_since else self._last} | {self.evicted} evicted]>"

    async def run(self) -> None:
        """Look at the table until cancelled."""
        while True:
            began = time.monotonic()
            try:
                response = await self._session.request(self._dialect.look)
            except LOST as error:
                self.true_since = None
                self._last = repr(error)
            else:
                self.looked_at = began
                view = self._dialect.view_of(response)
                self._last = str(response if view is None else view)
                self.look(view, began)
            await asyncio.sleep(_PROBE_SECONDS)

    def look(self, view: View | None, began: float) -> None:
        """Compare a table with the brokers; `view` is None if the server responded with an error."""
        living = [each for each in self._brokers if each.died_at is None]
        self.has_dead = view is not None and any(each.name in view for each in self._brokers if each.died_at)
        is_true = view is not None and all(view.get(each.name) == each.queues for each in living)
        self.true_since = (self.true_since or began) if is_true else None
        if view is not None:
            for each in living:
                self._note(each, began, is_missing=each.name not in view)

    def _note(self, broker: Broker, now: float, *, is_missing: bool) -> None:
        """Count a broker that is missing although the server acknowledged its registration, and note for how long."""
        is_acknowledged = broker.acknowledged.get(self._server, now) < now
        if is_missing and is_acknowledged and broker.name not in self._missing:
            self.evicted += 1
            self._missing[broker.name] = now
        if broker.name in self._missing:
            self.longest_missing = max(self.longest_missing, now - self._missing[broker.name])
        if not is_missing:
            self._missing.pop(broker.name, None)

    def forget(self) -> None:
        """Forget acknowledged registrations, since the server has lost its table: missing brokers are not evicted."""
        self._missing.clear()
        for each in self._brokers:
            each.acknowledged.pop(self._server, None)
