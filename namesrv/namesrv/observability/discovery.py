"""Discovery pages: NameServers for brokers and clients (/rocketmq/nsaddr), targets for Prometheus (/sd/prometheus).

`/rocketmq/nsaddr` is what RocketMQ calls an address server: without a configured list, brokers and clients get the
NameServers from such a page every two minutes.
"""

import asyncio
import logging
import math
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from namesrv.context import Namesrv
from namesrv.net.peer import address_text
from namesrv_remoting.addresses import network_of
from namesrv_runtime.clock import Clock
from namesrv_runtime.log import event

logger: Final = logging.getLogger(__name__)

NAME_SERVERS_PAGE: Final = "/rocketmq/nsaddr"
TARGETS_PAGE: Final = "/sd/prometheus"
# Host names are resolved again after this time, and the page waits for the resolver no longer than this: Java's clients
# give up after three seconds.
RESOLVE_EVERY_SECONDS: Final = 10.0
_RESOLVE_SECONDS: Final = 2.0
# Requests of one address per second, and after a pause. A host with hundreds of clients that start together is served.
REQUESTS_PER_SECOND: Final = 20.0
BURST_REQUESTS: Final = 400.0
# Addresses whose requests are counted. A forgotten address starts anew, as after a pause.
_MAX_NETWORKS: Final = 4096

Endpoint = tuple[str, int]
# The addresses of a host and port; empty without an answer.
Resolver = Callable[[Endpoint], Awaitable[list[str]]]


class NameServers:
    """The addresses of all NameServers, from the setting `name_servers`."""

    def __init__(
        self, configured: Callable[[], tuple[Endpoint, ...]], clock: Clock, resolve: Resolver | None = None
    ) -> None:
        self._configured = configured
        self._clock = clock
        self._resolver = resolve or addresses_of
        # endpoint -> its addresses, as they were last resolved
        self._resolved: dict[Endpoint, list[str]] = {}
        self._resolve_at = -math.inf
        self._resolving = asyncio.Lock()

    async def addresses(self) -> list[str]:
        """All addresses, in the order of the setting. A name that was never resolved stands for itself."""
        endpoints = self._configured()
        async with self._resolving:
            if self._clock.monotonic() >= self._resolve_at or not self._resolved.keys() >= set(endpoints):
                await self._resolve(endpoints)
        found = (self._resolved.get(endpoint) or [address_text(endpoint)] for endpoint in endpoints)
        return list(dict.fromkeys(address for addresses in found for address in addresses))

    async def _resolve(self, endpoints: tuple[Endpoint, ...]) -> None:
        resolved = await asyncio.gather(*map(self._resolver, endpoints))
        # Without an answer of the resolver, the last addresses stay.
        self._resolved = {
            endpoint: addresses or self._resolved.get(endpoint, [])
            for endpoint, addresses in zip(endpoints, resolved, strict=True)
        }
        self._resolve_at = self._clock.monotonic() + RESOLVE_EVERY_SECONDS


async def addresses_of(endpoint: Endpoint) -> list[str]:
    """The addresses of a host, sorted, with its port; empty if the host cannot be resolved."""
    try:
        async with asyncio.timeout(_RESOLVE_SECONDS):
            found = await asyncio.get_running_loop().getaddrinfo(*endpoint, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError) as error:
        event(logger, logging.WARNING, "name_server_not_resolved", host=endpoint[0], error=str(error) or "timeout")
        return []
    return sorted({address_text(address) for *_, address in found})


class RequestRate:
    """Bounds how often one peer address may get a page."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # peer address -> the requests that it has left, and the time of that number
        self._left: dict[str, tuple[float, float]] = {}

    def admit(self, network: str) -> bool:
        """Count a request; False if the address has none left."""
        now = self._clock.monotonic()
        left, since = self._left.pop(network, (BURST_REQUESTS, now))
        left = min(BURST_REQUESTS, left + (now - since) * REQUESTS_PER_SECOND)
        if len(self._left) >= _MAX_NETWORKS:
            self._left.clear()
        self._left[network] = (left - 1 if left >= 1 else left, now)
        return left >= 1


def _name_server_routes(namesrv: Namesrv, name_servers: NameServers, rate: RequestRate) -> list[Route]:
    """The page with all NameServers, also below the names that clients with a unit name ask for."""

    async def page(request: Request) -> Response:
        if not rate.admit(network_of(request.client.host if request.client else "")):
            return PlainTextResponse("too many requests\n", 429, headers={"Retry-After": "1"})
        if not namesrv.settings.name_servers:
            return PlainTextResponse("name-servers is not set\n", 404)
        # RocketMQ's clients take the text as it is, up to a line break.
        return PlainTextResponse(";".join(await name_servers.addresses()) + "\n")

    return [Route(path, page, methods=["GET"]) for path in (NAME_SERVERS_PAGE, NAME_SERVERS_PAGE + "-{unit}")]


def name_servers_application(namesrv: Namesrv) -> ASGIApp:
    """The application of `name_servers_listen`, which has no other page."""

    async def not_found(_: Request, __: Exception) -> Response:
        return PlainTextResponse(f"not found; try {NAME_SERVERS_PAGE}\n", 404)

    routes = _name_server_routes(namesrv, _name_servers(namesrv), RequestRate(namesrv.clock))
    return Starlette(routes=routes, exception_handlers={404: not_found})


def discovery_routes(namesrv: Namesrv) -> list[Route]:
    """The discovery pages of the port for health and metrics."""
    rate, name_servers = RequestRate(namesrv.clock), _name_servers(namesrv)

    async def targets(request: Request) -> Response:
        if not rate.admit(network_of(request.client.host if request.client else "")):
            return PlainTextResponse("too many requests\n", 429, headers={"Retry-After": "1"})
        _, port = request.scope["server"]
        groups = [*_name_server_targets(await name_servers.addresses(), port), *_broker_targets(namesrv)]
        return Response(msgspec.json.encode(groups), media_type="application/json")

    return [
        *_name_server_routes(namesrv, name_servers, rate),
        Route(TARGETS_PAGE, targets, methods=["GET"]),
    ]


def _name_servers(namesrv: Namesrv) -> NameServers:
    return NameServers(lambda: namesrv.settings.name_server_list, namesrv.clock)


# -- Prometheus -------------------------------------------------------------------------------------------------------


class TargetGroup(msgspec.Struct, frozen=True):
    """Targets with the same labels, in the format of Prometheus (http_sd)."""

    targets: list[str]
    labels: Mapping[str, str]


def _name_server_targets(addresses: list[str], port: int) -> Iterable[TargetGroup]:
    """All NameServers, each on the port that this one has for metrics."""
    hosts = dict.fromkeys(address.rpartition(":")[0] for address in addresses)
    if hosts:
        yield TargetGroup([f"{host}:{port}" for host in hosts], {"__meta_namesrv_role": "nameserver"})


def _broker_targets(namesrv: Namesrv) -> Iterable[TargetGroup]:
    target = namesrv.settings.broker_metrics_target
    if not target:
        return
    for broker_name, group in namesrv.manager.tables.broker_addr_table.items():
        for broker_id, address in group.broker_addrs.items():
            labels = {"cluster": group.cluster, "broker_name": broker_name, "broker_id": str(broker_id)}
            text = target.format_map({"host": address.rpartition(":")[0], **labels})
            meta = {f"__meta_namesrv_{name}": value for name, value in labels.items()}
            yield TargetGroup([text], {"__meta_namesrv_role": "broker", **meta})
