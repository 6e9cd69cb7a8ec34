"""Lets real brokers die under real servers and clients, and records the exact times.

The heartbeat log is not read here. A death is the time of the injected fault; a removal is when a server stopped
listing the broker to a polling observer; a client's time is when its library reported the change.
"""

import asyncio
import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from namesrv_client import ClientSettings, RouteClient
from namesrv_client.routes.route import RouteChange
from tests.support.daemon import Daemon
from tests.support.namesrv_peer import NamesrvPeer
from tests.support.printing_process import run_script
from tests.support.tcp_proxy import TcpProxy

HEARTBEAT: Final = 1.0
EXPIRY: Final = 5.0
SCAN: Final = 0.5
POLL: Final = 1.0
# brokers per process, which die together
AGENTS: Final = 3
# clients per server
CLIENTS: Final = 3
# a server logs the usual heartbeat period of a broker from then on
BEATS_BEFORE_FAULTS: Final = 4
# precision of the observed removals
_LOOK_SECONDS: Final = 0.03
_GET_BROKER_CLUSTER_INFO: Final = 106
# a correct run needs less than a quarter of it
_GUARD_SECONDS: Final = 200.0

# registers its agents, prints a line, and unregisters them on SIGTERM
_BROKERS: Final = """
import asyncio, json, signal, sys, time
from contextlib import AsyncExitStack
from namesrv_broker_agent import AgentSettings, BrokerAgent, TopicConfig

async def main():
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with AsyncExitStack() as stack:
        for settings, topics in json.loads(sys.argv[1]):
            agent = BrokerAgent(AgentSettings(**settings), [TopicConfig(topic, 4, 4) for topic in topics])
            await stack.enter_async_context(agent)
            assert await agent.registered(timeout_seconds=90) == 2
        print("registered", flush=True)
        await ended.wait()
        print(time.time(), flush=True)

asyncio.run(main())
"""


@dataclass
class Death:
    """The death of one process of brokers; times in seconds since 1970."""

    names: tuple[str, ...]
    # crash, freeze, pause, partition or unregistration
    kind: str
    at: float
    # (server, broker) -> when the server stopped listing it, and when it listed it again
    removed: dict[tuple[int, str], float] = field(default_factory=dict)
    returned: dict[tuple[int, str], float] = field(default_factory=dict)
    # (client, broker) -> when the client received a route without it
    seen: dict[tuple[str, str], float] = field(default_factory=dict)


class BrokerProcess:
    """Several brokers in one process, which reach each server through a proxy of their own."""

    def __init__(self, kind: str, proxies: Sequence[TcpProxy]) -> None:
        self.kind = kind
        self.topic = f"topic-{kind}"
        self.names = tuple(f"{kind}-{number}" for number in range(AGENTS))
        self.proxies = proxies
        self._process: subprocess.Popen[str] | None = None

    async def start(self, topics: Iterable[str] = ()) -> None:
        """Start the process; return once all of its brokers are registered everywhere."""
        specs = [(self._settings(name, number), [self.topic, *topics]) for number, name in enumerate(self.names)]
        self._process = run_script(_BROKERS, json.dumps(specs))
        assert await self._read_line() == "registered"

    def _settings(self, name: str, number: int) -> dict[str, object]:
        return {
            "cluster_name": "cluster",
            "broker_name": name,
            "broker_addr": f"{self.kind}.example:{10_000 + number}",
            "name_servers": ";".join(proxy.address for proxy in self.proxies),
            "heartbeat_seconds": HEARTBEAT,
        }

    async def _read_line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        return (await asyncio.to_thread(self._process.stdout.readline)).strip()

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def leave(self) -> float:
        """Unregister the process's brokers; return when that began."""
        self.send_signal(signal.SIGTERM)
        return float(await self._read_line())

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()


class Experiment:
    """Two servers, some brokers and clients, as an async context manager; `run()` injects all faults."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._stack = AsyncExitStack()
        self._daemons: list[Daemon] = []
        self._has_news = asyncio.Condition()
        # broker names known to each server
        self._known: list[frozenset[str]] = [frozenset(), frozenset()]
        self._clients: list[str] = []
        self.deaths: list[Death] = []

    def __repr__(self) -> str:
        return f"<Experiment [{[death.kind for death in self.deaths]}]>"

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        flags = (f"--broker-expiry-seconds={EXPIRY}", f"--scan-interval-seconds={SCAN}")
        self._daemons = [
            self._stack.enter_context(Daemon(self._root / name, f"--nameserver-name={name}", *flags))
            for name in ("ns-1", "ns-2")
        ]
        for number, daemon in enumerate(self._daemons):
            await asyncio.to_thread(daemon.listening)
            peer = await NamesrvPeer.connect(daemon.address)
            looking = asyncio.create_task(self._look(number, peer))
            self._stack.push_async_callback(_ended, looking, peer)
        return self

    async def __aexit__(self, *raised: object) -> None:
        """Stop the servers first, so that no log contains the end of the test."""
        for daemon in self._daemons:
            await asyncio.to_thread(daemon.stop)
        await self._stack.aclose()

    async def _look(self, server: int, peer: NamesrvPeer) -> None:
        while True:
            answer = await peer.call(_GET_BROKER_CLUSTER_INFO)
            known = frozenset(json.loads(answer.body)["brokerAddrTable"])
            await self._note(server, known, time.time())
            # a server does not notify observers, so that this one polls
            await asyncio.sleep(_LOOK_SECONDS)

    async def _note(self, server: int, known: frozenset[str], now: float) -> None:
        for death in self.deaths:
            for name in death.names:
                if name in self._known[server] - known:
                    death.removed.setdefault((server, name), now)
                elif name in known - self._known[server]:
                    death.returned.setdefault((server, name), now)
        if known != self._known[server]:
            self._known[server] = known
            await self._notify()

    def _changed(self, client: str) -> Callable[[RouteChange], None]:
        def note(change: RouteChange) -> None:
            now = time.time()
            for death in self.deaths:
                for name in set(death.names) & set(change.brokers_removed):
                    death.seen.setdefault((client, name), now)
            self._notifying = asyncio.ensure_future(self._notify())

        return note

    async def _notify(self) -> None:
        async with self._has_news:
            self._has_news.notify_all()

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with self._has_news:
            await self._has_news.wait_for(condition)

    async def run(self) -> None:
        """Start brokers and clients, inject every fault, and wait until all servers and clients have seen it."""
        async with asyncio.timeout(_GUARD_SECONDS):
            processes = {
                kind: await self._process(kind) for kind in ("crash", "freeze", "pause", "partition", "unregistration")
            }
            lasting = await self._process("lasting")
            topics = [process.topic for process in processes.values()]
            await asyncio.gather(*(process.start() for process in processes.values()), lasting.start(topics))
            for number in range(2 * CLIENTS):
                await self._client(number, topics)
            # real clocks: the log must know the brokers' usual heartbeat period first
            await asyncio.sleep(BEATS_BEFORE_FAULTS * HEARTBEAT)
            await self._faults(processes)

    async def _process(self, kind: str) -> BrokerProcess:
        proxies = [await self._stack.enter_async_context(TcpProxy(daemon.address)) for daemon in self._daemons]
        process = BrokerProcess(kind, proxies)
        self._stack.callback(process.end)
        return process

    async def _client(self, number: int, topics: Iterable[str]) -> None:
        host, port = self._daemons[number % 2].address
        name = f"client-{number}"
        settings = ClientSettings(name_servers=f"{host}:{port}", poll_seconds=POLL, warm_up_seconds=0, client_name=name)
        client = await self._stack.enter_async_context(RouteClient(settings))
        for topic in topics:
            await client.route(topic)
        self._stack.callback(client.on_change(self._changed(name)))
        self._clients.append(name)

    async def _faults(self, processes: dict[str, BrokerProcess]) -> None:
        for kind, signal_number in (("crash", signal.SIGKILL), ("freeze", signal.SIGSTOP), ("pause", signal.SIGSTOP)):
            self._dies(processes[kind])
            processes[kind].send_signal(signal_number)
        self._dies(processes["partition"])
        for proxy in processes["partition"].proxies:
            proxy.stall()
        unregistration = self._dies(processes["unregistration"])
        unregistration.at = await processes["unregistration"].leave()
        await self._until(lambda: all(len(death.removed) == 2 * AGENTS for death in self.deaths))
        await self._until(lambda: all(len(death.seen) == len(self._clients) * AGENTS for death in self.deaths))
        processes["pause"].send_signal(signal.SIGCONT)
        pause = next(death for death in self.deaths if death.kind == "pause")
        await self._until(lambda: len(pause.returned) == 2 * AGENTS)

    def _dies(self, process: BrokerProcess) -> Death:
        death = Death(process.names, process.kind, time.time())
        self.deaths.append(death)
        return death


async def _ended(looking: asyncio.Task[None], peer: NamesrvPeer) -> None:
    looking.cancel()
    # the observed server has stopped
    await asyncio.gather(looking, return_exceptions=True)
    peer.close()
    with suppress(ConnectionError):
        await peer.writer.wait_closed()
