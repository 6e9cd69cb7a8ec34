"""Fuzzes a whole NameServer in this process, and checks it after every batch of frames."""

import asyncio
import contextlib
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgpack

from namesrv.server.controller import NamesrvController
from namesrv.settings.model import Settings
from namesrv_remoting.bodies.register import RegisterBrokerBody, encode_json_body
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig
from namesrv_runtime.log import JsonFormatter, TextFormatter
from tests.fuzz.dice import Dice
from tests.fuzz.streams import Due, Stream, chopped
from tests.support.fake_clock import GUARD_SECONDS, FakeClock, settle, until
from tests.support.spelling import JSON, Answer, binary_frame, json_frame, native_frame, read_answers
from tests.support.table_invariants import violations

# connections that are busy at the same time
BUSY: Final = 24
# what a server reads at once; of a longer stream it may have read a part when it closes, and that is a reset
ONE_READ_BYTES: Final = 1 << 16
LOGGERS: Final = ("namesrv", "namesrv_remoting", "asyncio")
RESPONSE_CODES: Final = frozenset({0, 1, 2, 3, 16, 17, 22})

CONTROL: Final = {
    "clusterName": "control-cluster",
    "brokerName": "control-broker",
    "brokerAddr": "127.0.0.9:10911",
    "brokerId": "0",
}
CONTROL_TOPIC: Final = "control-topic"
CONTROL_ROUTE: Final = (
    b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.9:10911"},"brokerName":"control-broker",'
    b'"cluster":"control-cluster","enableActingMaster":false}],"filterServerTable":{},'
    b'"queueDatas":[{"brokerName":"control-broker","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
)


class Trouble(logging.Handler):
    """What must not be logged: errors, tracebacks, and whatever a line cannot be made of."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.found: list[str] = []
        self._formatters = (TextFormatter(), JsonFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Look at a record as the daemon's own handler would."""
        text, as_json = (formatter.format(record) for formatter in self._formatters)
        if record.levelno >= logging.ERROR or record.exc_info:
            self.found.append(text)
        if not (text.isprintable() and as_json.isascii() and isinstance(json.loads(as_json), dict)):
            self.found.append(f"not one printable line: {text!r}")

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Hear everything, debug lines too, and keep it from pytest, which would keep all of it."""
        before = [(logger, logger.level, logger.propagate) for logger in map(logging.getLogger, LOGGERS)]
        for logger, _, _ in before:
            logger.addHandler(self)
            logger.setLevel(logging.DEBUG)
            logger.propagate = False
        try:
            yield
        finally:
            for logger, level, propagate in before:
                logger.removeHandler(self)
                logger.setLevel(level)
                logger.propagate = propagate

    def loop_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An exception that nobody handled."""
        self.found.append(f"loop: {context.get('message')}: {context.get('exception')!r}")


class FuzzPeer(asyncio.Protocol):
    """One connection: sends its stream, and collects what comes back."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.is_lost = False
        # by a reset, which happens to who goes on sending; it may take along what had not been read
        self.is_reset = False
        self.transport: Any = None
        self._rest = b""
        self._changed = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        """Connected."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Answers."""
        found, self._rest = read_answers(self._rest + data)
        self.answers += found
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end, in order or not."""
        self.is_lost, self.is_reset = True, exc is not None
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for answers or the end."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def ask(self, question: bytes) -> Answer:
        """Send a question, and wait for one more answer."""
        count = len(self.answers)
        self.transport.write(question)
        await self.until(lambda: self.is_lost or len(self.answers) > count)
        return self.answers[count]


class FuzzServer:
    """A NameServer with a broker, a topic and a client of its own, which no fuzzed frame may disturb."""

    def __init__(self, data_dir: Path) -> None:
        settings = Settings(
            listen_host="127.0.0.1",
            listen_port=0,
            http_listen="",
            data_dir=data_dir,
            nameserver_name="fuzzed",
            admin_enabled=True,
            drain_seconds=0,
            # small, because each change writes the whole file
            kv_max_namespaces=4,
            kv_max_keys_per_namespace=20,
            kv_max_value_bytes=256,
        )
        self._clock = FakeClock()
        self._controller = NamesrvController(settings, self._clock)
        self._peers: list[FuzzPeer] = []
        self.trouble = Trouble()

    async def run(self, body: Callable[["FuzzServer"], Awaitable[None]]) -> None:
        """Serve while the body runs, and look for trouble until the end."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self.trouble.loop_failed)
        try:
            with self.trouble.listening():
                async with asyncio.timeout(2 * GUARD_SECONDS):
                    serving = asyncio.create_task(self._controller.serve())
                    await self._controller.listening.wait()
                    try:
                        await self._begin()
                        await body(self)
                    finally:
                        await self._end(serving)
        finally:
            loop.set_exception_handler(None)
        assert not self.trouble.found, self.trouble.found

    async def _begin(self) -> None:
        self._control = await self._connect()
        topics = [TopicConfig(topic, 4, 4, 6) for topic in (CONTROL_TOPIC, "control-other")]
        body = encode_json_body(RegisterBrokerBody(topics, DataVersion(1)))
        assert 0 == (await self._control.ask(json_frame(103, 1, CONTROL, body))).code
        await self.check_control()

    async def _end(self, serving: "asyncio.Task[None]") -> None:
        for peer in (*self._peers, self._control):
            peer.transport.abort()
        self._controller.ask_to_stop()
        while not serving.done():
            await self._clock.advance(0.05)
        await serving

    async def _connect(self) -> FuzzPeer:
        loop = asyncio.get_running_loop()
        _, peer = await loop.create_connection(FuzzPeer, *self._controller.addresses[0])
        return peer

    # -- sending ------------------------------------------------------------------------------------------------------

    async def feed(self, streams: Iterable[Stream], dice: Dice) -> None:
        """Send every stream over a connection of its own, a few at a time; what comes back is checked."""
        waiting = list(streams)[::-1]

        async def work() -> None:
            while waiting:
                await self._feed_one(waiting.pop(), dice)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(BUSY):
                tasks.create_task(work())

    async def _feed_one(self, stream: Stream, dice: Dice) -> None:
        peer = await self._connect()
        self._peers.append(peer)
        pieces = chopped(stream, dice)
        for piece in pieces:
            if peer.is_lost:
                break
            peer.transport.write(piece)
            await asyncio.sleep(0)
        try:
            async with asyncio.timeout(GUARD_SECONDS):
                await peer.until(lambda: _is_done(stream, peer))
        except TimeoutError:
            problem = "not answered in time"
        else:
            problem = _check(stream, peer)
            if peer.is_reset and len(pieces) == 1 and len(pieces[0]) <= ONE_READ_BYTES:
                problem = problem or "reset"
        assert not problem, f"{problem}: {[piece.hex() for piece in stream.pieces]}"

    # -- what must hold -----------------------------------------------------------------------------------------------

    async def check_control(self) -> None:
        """The control client gets the right route at once, over every road."""
        async with asyncio.timeout(GUARD_SECONDS):
            for spell in (json_frame, binary_frame):
                answer = await self._control.ask(spell(105, 7, {"topic": CONTROL_TOPIC}))
                assert (JSON, 0, 7, CONTROL_ROUTE) == (answer.serialize_type, answer.code, answer.opaque, answer.body)
            answer = await self._control.ask(native_frame(105, 8, {"topic": CONTROL_TOPIC}))
            assert (0, 8) == (answer.code, answer.opaque)
            assert {0: "127.0.0.9:10911"} == msgpack.unpackb(answer.body, strict_map_key=False)["broker_datas"][0][
                "broker_addrs"
            ]

    async def check(self) -> None:
        """Everything: the log, the tables while brokers live, late peers, and what is left when all peers are gone."""
        await self.check_control()
        namesrv = self._controller.namesrv
        tables = namesrv.manager.tables
        assert [] == violations(tables)
        await self._check_late_peers()
        for peer in self._peers:
            peer.transport.abort()
        self._peers.clear()
        async with asyncio.timeout(GUARD_SECONDS):
            await until(lambda: len(namesrv.connections) == 1 == len(tables.broker_live_table))
        await settle()
        self._check_nothing_is_left()
        await self.check_control()
        assert not self.trouble.found, self.trouble.found

    async def _check_late_peers(self) -> None:
        """Whoever began a frame and did not end it is closed when its time is over; nobody else is."""
        connections = self._controller.namesrv.connections
        late = {one.id for one in connections.values() if one.is_inside_frame}
        others = {one.id for one in connections.values() if one.is_open} - late
        await self._clock.advance(31.5)
        async with asyncio.timeout(GUARD_SECONDS):
            await until(lambda: not late & connections.keys())
        gone = others - connections.keys()
        assert not gone, f"closed for nothing: {gone} of {len(others)}"

    def _check_nothing_is_left(self) -> None:
        namesrv = self._controller.namesrv
        tables = namesrv.manager.tables
        assert [] == violations(tables)
        assert {"control-cluster": {"control-broker"}} == tables.cluster_addr_table
        assert ["control-broker"] == list(tables.broker_addr_table)
        assert {CONTROL_TOPIC, "control-other"} == tables.topic_queue_table.keys()
        assert [] == [*tables.filter_server_table, *tables.topic_queue_mapping_info_table, *tables.wiped]
        assert tables.digests.keys() <= {("control-cluster", "127.0.0.9:10911")}
        assert (0, 0) == (len(namesrv.watchers), sum(one.in_flight for one in namesrv.connections.values()))


def _is_done(stream: Stream, peer: FuzzPeer) -> bool:
    if peer.is_lost or stream.is_broken:
        return peer.is_lost
    # counted only when there may be enough
    return len(peer.answers) >= stream.due.total() and not _miscounted(stream, peer)


def _miscounted(stream: Stream, peer: FuzzPeer) -> str:
    """Which questions were not answered, or answered too often; those without an opaque get any number."""
    numbered = Counter({due: count for due, count in stream.due.items() if due[1] is not None})
    without = stream.due.total() - numbered.total()
    came: Counter[Due] = Counter((answer.serialize_type, answer.opaque) for answer in peer.answers)
    missing, rest = numbered - came, came - numbered
    if rest.total() > without + stream.may_wait.total() or not (
        peer.is_reset or (not missing and without <= rest.total())
    ):
        return f"missing {dict(missing)}, besides {dict(rest)} for {without} without a number"
    return ""


def _check(stream: Stream, peer: FuzzPeer) -> str:
    """What is wrong with what came back, if anything."""
    if peer.is_lost and not stream.is_broken:
        return "closed for nothing"
    for answer in peer.answers:
        if answer.header["flag"] != 1 or answer.code not in RESPONSE_CODES or "internal error" in str(answer.remark):
            return f"answered {answer.header}"
        if answer.serialize_type == JSON and answer.body.startswith(b"{"):
            json.loads(answer.body)
    return _miscounted(stream, peer)
