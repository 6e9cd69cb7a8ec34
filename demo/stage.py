"""The cast: two NameServers, three brokers and a slave, a producer and a consumer."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from demo.applications import Consumer, Producer
from demo.screen import Screen
from demo.servers import Broker, NameServer
from demo.times import Times
from demo.witness import Instance, Witness
from namesrv_client import ClientSettings, RouteClient


@dataclass(slots=True)
class Stage:
    """All that runs."""

    screen: Screen
    witness: Witness
    times: Times
    servers: dict[str, NameServer]
    brokers: dict[Instance, Broker]
    producer: Producer
    consumer: Consumer

    async def known_everywhere(self, instances: Iterable[Instance]) -> None:
        """Wait until both servers and both applications know these brokers."""
        wanted = frozenset(instances)
        both = (self.producer, self.consumer)
        await self.witness.until(
            "every broker is known everywhere",
            lambda: (
                all(wanted <= server.brokers and server.is_ready for server in self.servers.values())
                and all(application.sees(instance) for application in both for instance in wanted)
            ),
        )

    async def gone_everywhere(self, instance: Instance) -> None:
        """Wait until neither a server nor an application knows a broker."""
        both = (self.producer, self.consumer)
        await self.witness.until(
            "the broker is gone everywhere",
            lambda: (
                all(instance not in server.brokers for server in self.servers.values())
                and not any(application.sees(instance) for application in both)
            ),
            self.times.bound_seconds + 10,
        )


@asynccontextmanager
async def stage(directory: Path, times: Times, screen: Screen) -> AsyncIterator[Stage]:
    """Start everything; at the end of the block nothing of it runs any more."""
    witness = Witness()
    async with AsyncExitStack() as stack:
        servers = {name: NameServer(name, directory / name, times, screen, witness) for name in ("ns1", "ns2")}
        for server in servers.values():
            stack.push_async_callback(_end_server, server)
            await server.start()
        addresses = ";".join(server.address for server in servers.values())
        brokers: dict[Instance, Broker] = {}
        for name, broker_id in (("broker-a", 0), ("broker-a", 1), ("broker-b", 0), ("broker-c", 0)):
            broker = brokers[name, broker_id] = Broker(name, broker_id, addresses, times, witness)
            stack.push_async_callback(_end_broker, broker)
            await broker.start()
        producer = Producer("producer", await _client(stack, addresses, times, watch=True), screen, witness)
        consumer = Consumer("consumer", await _client(stack, addresses, times, watch=False), screen, witness)
        for application in (producer, consumer):
            application.servers = {server.address: server for server in servers.values()}
            await stack.enter_async_context(_running(application))
        yield Stage(screen, witness, times, servers, brokers, producer, consumer)


# a method of what `start` makes anew, so looked up at the end and not before
async def _end_server(server: NameServer) -> None:
    await server.child.__aexit__(None, None, None)


async def _end_broker(broker: Broker) -> None:
    await broker.child.__aexit__(None, None, None)


async def _client(stack: AsyncExitStack, name_servers: str, times: Times, *, watch: bool) -> RouteClient:
    settings = ClientSettings(
        name_servers=name_servers,
        protocol="native",
        poll_seconds=times.poll_seconds,
        warm_up_seconds=times.warm_up_seconds,
        watch=watch,
        fault_tolerance=True,
    )
    return await stack.enter_async_context(RouteClient(settings))


@asynccontextmanager
async def _running(application: Producer | Consumer) -> AsyncIterator[None]:
    """Let it work until the block ends; its bugs are the block's."""
    owner = asyncio.current_task()
    task = asyncio.create_task(application.run())

    def ended(work: asyncio.Task[None]) -> None:
        if not work.cancelled() and owner is not None:
            owner.cancel("an application ended")

    task.add_done_callback(ended)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await application.finish()
