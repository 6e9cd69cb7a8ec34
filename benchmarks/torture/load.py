"""Brokers and clients that speak RocketMQ's protocol over plain sockets, and probes that watch the servers' tables.

They behave as Apache's do: brokers register their whole table again and again, clients pull a route and change servers
when a connection dies. All times are on the monotonic clock.
"""

import asyncio
import contextlib
import json
import random
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from benchmarks.harness import wire
from benchmarks.harness.hosts import new_socket
from benchmarks.torture.servers import EXPIRY_SECONDS, PORT, REGISTRATION_SECONDS
from namesrv_remoting.bodies.topic import TopicConfig
from namesrv_remoting.codes import RequestCode, ResponseCode
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.frames import FrameReader
from namesrv_remoting.serializers import decode_frame
from tests.netns.network import Host

TOPIC: Final = "orders"
QUEUES: Final = 8
ROUTE: Final = wire.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC, "acceptStandardJsonOnly": "true"})
# Clients pull often, so that each pull also samples the routes; Java's clients pull every 30 s.
_PULL_SECONDS: Final = 0.2
_PROBE_SECONDS: Final = 0.1
# longest wait of probes, and of brokers, for a connection and a response together
_PROBE_PATIENCE: Final = 1.0
_BROKER_PATIENCE: Final = 3.0
# A broker that falls silent waits this long for responses to its last registration.
_LAST_SECONDS: Final = 0.3
# most bytes of one read
_AT_ONCE: Final = 1 << 16

# errors of a request without a response
LOST: Final = (OSError, EOFError, TimeoutError)
# broker name -> its read queues of TOPIC
View = Mapping[str, int]
# a host, and one of its addresses
Place = tuple[Host, str]


class Session:
    """A connection to a server, which is opened when it is needed; one request is in flight at a time."""

    def __init__(self, host: Host, source: str, target: str, patience: float) -> None:
        self._host = host
        self._source = source
        self.target = target
        self._patience = patience
        self._lock = asyncio.Lock()
        self._socket: socket.socket | None = None

    async def request(self, frame: bytes) -> RemotingCommand:
        """Send a request and return its response; any failure closes the connection. Raises one of LOST."""
        async with self._lock:
            try:
                async with asyncio.timeout(self._patience):
                    return await self._response_to(frame)
            except BaseException:
                self._drop()
                raise

    async def _response_to(self, frame: bytes) -> RemotingCommand:
        loop, reader = asyncio.get_running_loop(), FrameReader()
        if self._socket is None:
            self._socket = new_socket(self._host, self._source)
            await loop.sock_connect(self._socket, (self.target, PORT))
        await loop.sock_sendall(self._socket, frame)
        while data := await loop.sock_recv(self._socket, _AT_ONCE):
            for received in reader.receive_data(data):
                return decode_frame(received)
        raise EOFError("connection closed")

    async def idle(self) -> None:
        """Wait until no request is in flight."""
        async with self._lock:
            pass

    def close(self) -> None:
        """Close the connection, which a request in flight notices; the next request opens another."""
        if self._socket is not None and self._lock.locked():
            # The event loop still watches the socket.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        else:
            self._drop()

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


@lru_cache(maxsize=1024)
def view_of(body: bytes) -> View:
    """The brokers in a route that have an address and queues."""
    route = json.loads(body)
    reachable = {data["brokerName"] for data in route["brokerDatas"] if data["brokerAddrs"]}
    return {q["brokerName"]: q["readQueueNums"] for q in route["queueDatas"] if q["brokerName"] in reachable}


# -- brokers ----------------------------------------------------------------------------------------------------------


class Broker:
    """A master with TOPIC and a topic of its own, registered with all servers."""

    def __init__(self, number: int, host: Host, source: str, servers: Sequence[str]) -> None:
        self.name = f"broker-{number}"
        self.queues = QUEUES
        # time at which the last start was complete: the broker has tried each server; None before
        self.registered_at: float | None = None
        # time at which the broker was killed or fell silent; None while the broker lives
        self.died_at: float | None = None
        # server -> time of the first registration of this life that the server acknowledged
        self.acknowledged: dict[str, float] = {}
        self.sessions = {server: Session(host, source, server, _BROKER_PATIENCE) for server in servers}
        self._place = (host, source)
        self._counter = 1
        # True from the time at which the broker begins no further periodic registration
        self._is_paused = False
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Register with all servers, and from then on periodically."""
        self._is_paused = False
        await asyncio.gather(*(self._register(server, self.registration()) for server in self.sessions))
        self.registered_at = time.monotonic()
        self._tasks = [asyncio.create_task(self._keep(server)) for server in self.sessions]

    async def _keep(self, server: str) -> None:
        await asyncio.sleep(random.uniform(0, REGISTRATION_SECONDS))
        while not self._is_paused:
            began = time.monotonic()
            await self._register(server, self.registration())
            await asyncio.sleep(max(0.0, began + REGISTRATION_SECONDS - time.monotonic()))

    async def _register(self, server: str, frame: bytes) -> None:
        with contextlib.suppress(*LOST):
            response = await self.sessions[server].request(frame)
            if response.code == ResponseCode.SUCCESS:
                self.acknowledged.setdefault(server, time.monotonic())

    def registration(self, *names: str) -> bytes:
        """The registration of some topics, by default of all."""
        topics = [TopicConfig(name, self.queues, self.queues) for name in names or (TOPIC, f"own-{self.name}")]
        return self._broker(topics).json_frame()

    def _broker(self, topics: Sequence[TopicConfig] = ()) -> wire.Broker:
        expiry_ms = round(EXPIRY_SECONDS * 1000)
        return wire.Broker(self.name, f"{self._place[1]}:10911", topics, counter=self._counter, expiry_ms=expiry_ms)

    def is_registered_before(self, now: float) -> bool:
        """True if the broker's last start was complete before `now`."""
        return self.registered_at is not None and self.registered_at < now

    async def change(self, *chunks: str) -> None:
        """Change the queues of all topics under one new DataVersion, and register these topics one by one."""
        self.queues += 1
        self._counter += 1
        for topic in chunks:
            frame = self.registration(topic)
            await asyncio.gather(*(self._register(server, frame) for server in self.sessions))

    def die(self) -> None:
        """Die: all registrations end, and all connections close."""
        self._rest()
        self.died_at = time.monotonic()
        _close(self.sessions)

    async def fall_silent(self) -> None:
        """Register once more, so that the expiry begins now, and then never again; connections stay open."""
        last = [asyncio.create_task(self._register(server, self.registration())) for server in self.sessions]
        await asyncio.wait(last, timeout=_LAST_SECONDS)
        self._is_paused = True
        self.died_at = time.monotonic()
        self._tasks += last

    async def restart(self, *, is_late: bool) -> None:
        """A new process registers; the connections of the old process close before.

        If the restart is late, the old process unregisters and closes its connections after the new registration.
        """
        self._is_paused = True
        if is_late:
            # The last registration of the old process must not arrive after the first of the new one.
            await asyncio.gather(*(session.idle() for session in self.sessions.values()))
        self._rest()
        old, host_and_source = self.sessions, self._place
        self.registered_at, self.acknowledged = None, {}
        self.sessions = {server: Session(*host_and_source, server, _BROKER_PATIENCE) for server in old}
        if not is_late:
            _close(old)
        await self.start()
        if is_late:
            for session in old.values():
                with contextlib.suppress(*LOST):
                    await session.request(self._broker().unregistration())
            _close(old)

    def _rest(self) -> None:
        for task in self._tasks:
            task.cancel()


def _close(sessions: Mapping[str, Session]) -> None:
    for session in sessions.values():
        session.close()


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
    """Pulls TOPIC from one server, and from the next server after a closed connection or a late response."""

    def __init__(self, place: Place, servers: Sequence[str], brokers: Sequence[Broker], patience: float = 1.0) -> None:
        self.place = place
        # addresses of the servers, in the order of their use
        self.servers = servers
        # sessions with the servers; the first session is in use
        self._sessions = [Session(*place, server, patience) for server in servers]
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
            response = await self._sessions[0].request(ROUTE)
        except LOST:
            self._sessions.append(self._sessions.pop(0))
            pulls.failed += 1
        else:
            self._judge(response, began, pulls)

    def close(self) -> None:
        """Close all connections; the next pull opens another."""
        for session in self._sessions:
            session.close()

    def restart(self) -> None:
        """Use the first server again."""
        self._sessions.sort(key=lambda session: self.servers.index(session.target))

    def _judge(self, response: RemotingCommand, began: float, pulls: Pulls) -> None:
        if response.code != ResponseCode.SUCCESS:
            pulls.failed += 1
            return
        view = view_of(response.body)
        due = {each.name for each in self._brokers if each.died_at is None and each.is_registered_before(began)}
        pulls.wrong += not due <= view.keys()
        for each in self._brokers:
            if each.died_at is not None and each.name in view:
                pulls.dead_seconds = max(pulls.dead_seconds, began - each.died_at)


class Probe:
    """Watches the table of one server from the server's own host, so that no fault of the network disturbs it."""

    def __init__(self, host: Host, brokers: Sequence[Broker]) -> None:
        self._server = host.address
        self._session = Session(host, host.address, host.address, _PROBE_PATIENCE)
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
                response = await self._session.request(ROUTE)
            except LOST as error:
                self.true_since = None
                self._last = repr(error)
            else:
                self.looked_at = began
                self._last = response.remark or "" if response.code else str(view_of(response.body))
                self.look(view_of(response.body) if response.code == ResponseCode.SUCCESS else None, began)
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
        if is_missing and broker.acknowledged.get(self._server, now) < now:
            self.evicted += broker.name not in self._missing
            self._missing.setdefault(broker.name, now)
        if broker.name in self._missing:
            self.longest_missing = max(self.longest_missing, now - self._missing[broker.name])
        if not is_missing:
            self._missing.pop(broker.name, None)

    def forget(self) -> None:
        """Forget acknowledged registrations, since the server has lost its table: missing brokers are not evicted."""
        self._missing.clear()
        for each in self._brokers:
            each.acknowledged.pop(self._server, None)
