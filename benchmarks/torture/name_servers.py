"""Brokers and clients of NameServers, in RocketMQ's protocol: ours, Apache's and rocketmq-rust's."""

import asyncio
import contextlib
import json
import random
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from benchmarks.harness import wire
from benchmarks.torture.load import EXPIRY_SECONDS, REGISTRATION_SECONDS, Broker
from benchmarks.torture.sessions import LOST, Dialect, Place, Session, View
from namesrv_remoting.bodies.topic import TopicConfig
from namesrv_remoting.codes import RequestCode, ResponseCode
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.frames import FrameReader
from namesrv_remoting.serializers import decode_frame

TOPIC: Final = "orders"
ROUTE: Final = wire.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC, "acceptStandardJsonOnly": "true"})
# longest wait of a broker for a connection and a response together
_PATIENCE: Final = 3.0
# A broker that falls silent waits this long for responses to its last registration.
_LAST_SECONDS: Final = 0.3


class RocketMQ(Dialect[RemotingCommand]):
    """RocketMQ's protocol."""

    pull = look = ROUTE

    def response_in(self, data: bytes) -> RemotingCommand | None:
        """The first frame; None while it is incomplete."""
        frames = FrameReader().receive_data(data)
        return decode_frame(frames[0]) if frames else None

    def view_of(self, response: RemotingCommand) -> View | None:
        """The brokers in a route; None for an error."""
        return brokers_in(response.body) if response.code == ResponseCode.SUCCESS else None


@lru_cache(maxsize=1024)
def brokers_in(body: bytes) -> View:
    """The brokers in a route that have an address and queues."""
    route = json.loads(body)
    reachable = {data["brokerName"] for data in route["brokerDatas"] if data["brokerAddrs"]}
    return {q["brokerName"]: q["readQueueNums"] for q in route["queueDatas"] if q["brokerName"] in reachable}


class RegisteredBroker(Broker):
    """A master with TOPIC and a topic of its own, registered with each server."""

    dialect = RocketMQ()

    def __init__(self, number: int, place: Place, servers: Sequence[str]) -> None:
        super().__init__(number, place, servers)
        self._sessions = self._new_sessions()
        self._counter = 1
        # True from the time at which the broker begins no further periodic registration
        self._is_paused = False

    def _new_sessions(self) -> Mapping[str, Session[RemotingCommand]]:
        return {server: Session(self.dialect, self.place, server, _PATIENCE) for server in self.servers}

    async def start(self) -> None:
        """Register with all servers, and from then on periodically."""
        self._is_paused = False
        await asyncio.gather(*(self._register(server, self._registration()) for server in self.servers))
        self.started(*(self._keep(server) for server in self.servers))

    async def _keep(self, server: str) -> None:
        await asyncio.sleep(random.uniform(0, REGISTRATION_SECONDS))
        while not self._is_paused:
            began = time.monotonic()
            await self._register(server, self._registration())
            await asyncio.sleep(max(0.0, began + REGISTRATION_SECONDS - time.monotonic()))

    async def _register(self, server: str, frame: bytes) -> None:
        with contextlib.suppress(*LOST):
            response = await self._sessions[server].request(frame)
            if response.code == ResponseCode.SUCCESS:
                self.acknowledged.setdefault(server, time.monotonic())

    def _registration(self, *names: str) -> bytes:
        """The registration of some topics, by default of all."""
        topics = [TopicConfig(name, self.queues, self.queues) for name in names or (TOPIC, f"own-{self.name}")]
        return self._broker(topics).json_frame()

    def _broker(self, topics: Sequence[TopicConfig] = ()) -> wire.Broker:
        expiry_ms = round(EXPIRY_SECONDS * 1000)
        return wire.Broker(self.name, f"{self.place[1]}:10911", topics, counter=self._counter, expiry_ms=expiry_ms)

    async def change(self) -> None:
        """Change the queues, and register the common topic alone."""
        await self.change_in_chunks(TOPIC)

    async def change_in_chunks(self, *topics: str) -> None:
        """Change the queues of all topics under one new DataVersion, and register these topics one by one."""
        self.queues += 1
        self._counter += 1
        for topic in topics:
            frame = self._registration(topic)
            await asyncio.gather(*(self._register(server, frame) for server in self.servers))

    def close(self) -> None:
        """Close all connections."""
        _close(self._sessions)

    async def fall_silent(self) -> None:
        """Register once more, so that the expiry begins now, and then never again; connections stay open."""
        last = [asyncio.create_task(self._register(server, self._registration())) for server in self.servers]
        await asyncio.wait(last, timeout=_LAST_SECONDS)
        self._is_paused = True
        self.silenced(*last)

    async def restart(self) -> None:
        """Close the connections of the old process; then a new one registers."""
        self._is_paused = True
        self.rest()
        old, self._sessions = self._sessions, self._new_sessions()
        _close(old)
        await self.start()

    async def restart_late(self) -> None:
        """A new process registers; then the old process unregisters and closes its connections."""
        self._is_paused = True
        # The last registration of the old process must not arrive after the first of the new one.
        await asyncio.gather(*(session.idle() for session in self._sessions.values()))
        self.rest()
        old, self._sessions = self._sessions, self._new_sessions()
        await self.start()
        for session in old.values():
            with contextlib.suppress(*LOST):
                await session.request(self._broker().unregistration())
        _close(old)


def _close(sessions: Mapping[str, Session[RemotingCommand]]) -> None:
    for session in sessions.values():
        session.close()
