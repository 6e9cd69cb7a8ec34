"""The demo's producer and consumer."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from demo.screen import Screen
from demo.servers import NameServer, called
from demo.witness import Instance, Witness
from namesrv_client import RouteClient, RouteError
from namesrv_client.routes.route import Route, RouteChange
from namesrv_runtime.address import parse_address

TOPIC: Final = "orders"
_ATTEMPTS: Final = 4
_SEND_PAUSE_SECONDS: Final = 0.05
_READ_PAUSE_SECONDS: Final = 0.2
# what a broker may take to answer before the send counts as failed
_BROKER_SECONDS: Final = 0.3


class BrokerConnections:
    """A connection to each broker, made when it is needed."""

    def __init__(self) -> None:
        self._streams: dict[str, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}

    async def ask(self, address: str, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of the example broker. Raises OSError: there is none, or it is a refusal."""
        try:
            async with asyncio.timeout(_BROKER_SECONDS):
                if address in self._streams and self._streams[address][0].at_eof():
                    # hung up meanwhile: it was another process
                    self.forget(address)
                if address not in self._streams:
                    self._streams[address] = await asyncio.open_connection(*parse_address(address))
                reader, writer = self._streams[address]
                writer.write(json.dumps(question).encode() + b"\n")
                await writer.drain()
                line = await reader.readline()
        except (TimeoutError, OSError):
            self.forget(address)
            raise
        answer: dict[str, Any] = json.loads(line or b'{"error": "hung up"}')
        if "error" in answer:
            if not line:
                self.forget(address)
            raise OSError(answer["error"])
        return answer

    def has(self, address: str) -> bool:
        """Whether there is a connection."""
        return address in self._streams and not self._streams[address][0].at_eof()

    def forget(self, address: str) -> None:
        """Hang up: what still comes belongs to a question that was given up."""
        if (streams := self._streams.pop(address, None)) is not None:
            streams[1].close()

    def close(self) -> None:
        """Hang up everywhere."""
        for address in list(self._streams):
            self.forget(address)


class Application:
    """What producer and consumer have in common: a route client whose news are told."""

    def __init__(self, name: str, client: RouteClient, screen: Screen, witness: Witness) -> None:
        self.name = name
        self.client = client
        # by address
        self.servers: Mapping[str, NameServer] = {}
        self.connections = BrokerConnections()
        self._screen = screen
        self._witness = witness
        # the NameServer that is asked
        self.server: NameServer | None = None
        client.on_change(self._changed)

    def sees(self, instance: Instance) -> bool:
        """Whether the broker is in its route."""
        return instance in _instances(self.client.cached(TOPIC))

    def say(self, what: str, *, is_bad: bool = False) -> None:
        """Tell something."""
        self._screen.line(self.name, what, is_bad=is_bad)

    def look_at_server(self) -> None:
        """Tell which NameServer is asked, when it is another one that can answer."""
        chosen = self.servers.get(self.client.chosen_server or "")
        if chosen is not None and chosen.is_ready and chosen is not self.server:
            self.say(f"asks {chosen.name}")
            self.server = chosen

    async def finish(self) -> None:
        """Hang up."""
        self.connections.close()

    def _changed(self, change: RouteChange) -> None:
        if change.topic != TOPIC:
            return
        before, now = _instances(change.old), _instances(change.new)
        for instance in sorted(before - now):
            after = self._witness.noticed(self.name, instance)
            self.say(f"no longer sees {called(*instance)}{'' if after is None else f', after {after:.2f} s'}")
        if now - before:
            self.say(f"sees {', '.join(called(*instance) for instance in sorted(now - before))}")
        for name in change.queues_changed:
            self.say(f"sees other permissions on {name}")
        self._witness.tell()


class Producer(Application):
    """Sends a numbered message every 50 ms; one that a broker does not take goes to another broker."""

    def __init__(self, name: str, client: RouteClient, screen: Screen, witness: Witness) -> None:
        super().__init__(name, client, screen, witness)
        self.sent = 0
        # sends that needed another broker, and sends that none took
        self.repeated = 0
        self.failed = 0
        # brokers whose failures were told, until a send succeeds
        self._complained: set[str] = set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            self.look_at_server()
            await self._send(str(self.sent + self.failed))
            await asyncio.sleep(_SEND_PAUSE_SECONDS)

    async def _send(self, body: str) -> None:
        last: str | None = None
        for attempt in range(_ATTEMPTS):
            try:
                queue = await self.client.select_queue(TOPIC, last)
            except RouteError:
                continue
            last = self.client.broker_of(queue)
            if await self._took(last, queue.queue_id, body):
                self.sent += 1
                self.repeated += attempt > 0
                return
        self.failed += 1

    async def _took(self, broker: str, queue_id: int, body: str) -> bool:
        began = asyncio.get_running_loop().time()
        try:
            question = {"op": "produce", "topic": TOPIC, "queue": queue_id, "body": body}
            await self.connections.ask(self.client.master_of(broker) or "", question)
        except (OSError, ValueError):
            self.client.report(broker, _BROKER_SECONDS, failed=True)
            if broker not in self._complained:
                self._complained.add(broker)
                self.say(f"{broker} does not take a message; another broker gets it", is_bad=True)
            return False
        self.client.report(broker, asyncio.get_running_loop().time() - began)
        self._complained.discard(broker)
        return True


class Consumer(Application):
    """Reads all queues of the topic, over and over."""

    def __init__(self, name: str, client: RouteClient, screen: Screen, witness: Witness) -> None:
        super().__init__(name, client, screen, witness)
        self.received: set[str] = set()
        # (address, queue) -> where to go on reading
        self._offsets: dict[tuple[str, int], int] = defaultdict(int)

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            self.look_at_server()
            await self.read_all()
            await asyncio.sleep(_READ_PAUSE_SECONDS)

    async def finish(self) -> None:
        """Read what is left."""
        await self.read_all()
        await super().finish()

    async def read_all(self) -> None:
        """Read what all queues hold now."""
        try:
            queues = await self.client.subscribe_queues(TOPIC)
        except RouteError:
            return
        by_address: dict[str, list[int]] = defaultdict(list)
        for queue in queues:
            found = self.client.find_broker(queue.broker_name, 0, only_this=False)
            if found is not None:
                by_address[found.address].append(queue.queue_id)
        await asyncio.gather(*(self._read(address, numbers) for address, numbers in by_address.items()))

    async def _read(self, address: str, queues: Sequence[int]) -> None:
        if not self.connections.has(address):
            # it may be another process than before, which begins to count anew
            self._offsets = defaultdict(int, {key: at for key, at in self._offsets.items() if key[0] != address})
        try:
            for queue in queues:
                question = {"op": "consume", "topic": TOPIC, "queue": queue, "offset": self._offsets[address, queue]}
                answer = await self.connections.ask(address, question)
                self.received.update(answer["messages"])
                self._offsets[address, queue] = answer["next"]
        except OSError:
            # dead or frozen: the next round, or the next route, will do
            return


def _instances(route: Route | None) -> set[Instance]:
    if route is None or route.confirmed_absent_since is not None:
        return set()
    return {(group.broker_name, number) for group in route.data.broker_datas for number in group.broker_addrs}
