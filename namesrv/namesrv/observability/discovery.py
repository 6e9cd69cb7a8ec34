"""Discovery pages: NameServers for brokers and clients (/rocketmq/nsaddr), targets for Prometheus (/sd/prometheus).

`/rocketmq/nsaddr` is what RocketMQ calls an address server: without a configured list, brokers and clients get the
NameServers from such a page every two minutes.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from namesrv.access.quotas import Bucket
from namesrv.context import Namesrv
from namesrv.net.peer import address_text
from namesrv.yielding import in_chunks
from namesrv_remoting.addresses import network_of
from namesrv_remoting.bodies.route import BrokerData
from namesrv_runtime import threads
from namesrv_runtime.clock import Clock
from namesrv_runtime.log import event

logger: Final = logging.getLogger(__name__)

NAME_SERVERS_PAGE: Final = "/rocketmq/nsaddr"
TARGETS_PAGE: Final = "/sd/prometheus"
# Host names are resolved again after this time.
RESOLVE_EVERY_SECONDS: Final = 10.0
# The page waits for the resolver no longer than this, since Java's clients give up after three seconds.
_RESOLVE_SECONDS: Final = 2.0
# Requests that one address may send per second, and at once after a pause: hundreds of clients of one host may start
# together.
REQUESTS_PER_SECOND: Final = 20.0
BURST_REQUESTS: Final = 400.0
# Addresses whose requests are counted. A forgotten address starts anew, as after a pause.
_MAX_NETWORKS: Final = 4096

Endpoint = tuple[str, int]
# Broker groups whose targets are made between two yields to the event loop: about a millisecond.
_CHUNK: Final = 200
Page = Callable[[Request], Awaitable[Response]]
# Resolves a host and port to addresses; an empty list if the resolver does not respond.
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
        resolved = (self._resolved.get(endpoint) or [address_text(endpoint)] for endpoint in endpoints)
        return list(dict.fromkeys(address for addresses in resolved for address in addresses))

    async def _resolve(self, endpoints: tuple[Endpoint, ...]) -> None:
        resolved = await asyncio.gather(*map(self._resolver, endpoints))
        # If the resolver does not respond, the endpoint's last addresses stay.
        self._resolved = {
            endpoint: addresses or self._resolved.get(endpoint, [])
            for endpoint, addresses in zip(endpoints, resolved, strict=True)
        }
        self._resolve_at = self._clock.monotonic() + RESOLVE_EVERY_SECONDS


async def addresses_of(endpoint: Endpoint) -> list[str]:
    """The addresses of a host, sorted, with its port; empty if the host cannot be resolved."""
    try:
        async with asyncio.timeout(_RESOLVE_SECONDS):
            resolved = await threads.addresses_of(*endpoint)
    except (OSError, TimeoutError) as error:
        event(logger, logging.WARNING, "name_server_not_resolved", host=endpoint[0], error=str(error) or "timeout")
        return []
    return sorted({address_text(address) for *_, address in resolved})


class RequestRate:
    """Bounds how often one peer address may get a page."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # peer address -> its requests that are left
        self._left: dict[str, Bucket] = {}

    def admit(self, network: str) -> bool:
        """Count a request; False if the address has none left."""
        now, bucket = self._clock.monotonic(), self._left.get(network)
        if bucket is None:
            if len(self._left) >= _MAX_NETWORKS:
                self._left.clear()
            bucket = self._left[network] = Bucket(BURST_REQUESTS, now)
        bucket.refill(now, REQUESTS_PER_SECOND, BURST_REQUESTS)
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True


class Discovery:
    """The discovery pages of a server, which may be on two ports."""

    def __init__(self, namesrv: Namesrv) -> None:
        self._namesrv = namesrv
        self._name_servers = NameServers(lambda: namesrv.settings.current.name_server_list, namesrv.clock)
        self._rate = RequestRate(namesrv.clock)

    def routes(self) -> list[Route]:
        """All discovery pages, for the port of health and metrics."""
        return [*self._name_servers_routes(), self._route(TARGETS_PAGE, self._targets)]

    def name_servers_application(self) -> ASGIApp:
        """The application of `name_servers_listen`, which has no page but the list."""

        async def not_found(_: Request, __: Exception) -> Response:
            return PlainTextResponse(f"not found; try {NAME_SERVERS_PAGE}\n", 404)

        app = Starlette(routes=self._name_servers_routes(), exception_handlers={404: not_found})
        # A redirection would lead to any host that the request names.
        app.router.redirect_slashes = False
        return app

    def _name_servers_routes(self) -> list[Route]:
        """The list, also under the paths that clients with a unit name request, with and without a slash at the end."""
        paths = (NAME_SERVERS_PAGE, NAME_SERVERS_PAGE + "-{unit}")
        return [self._route(path + end, self._list) for path in paths for end in ("", "/")]

    def _route(self, path: str, page: Page) -> Route:
        """A page that is limited by peer address."""

        async def limited(request: Request) -> Response:
            if self._rate.admit(network_of(request.client.host if request.client else "")):
                return await page(request)
            return PlainTextResponse("too many requests\n", 429, headers={"Retry-After": "1"})

        return Route(path, limited, methods=["GET"])

    async def _list(self, _: Request) -> Response:
        if not self._namesrv.settings.current.name_servers:
            return PlainTextResponse("name-servers is not set\n", 404)
        # RocketMQ's clients take the text as it is, up to a line break.
        return PlainTextResponse(";".join(await self._name_servers.addresses()) + "\n")

    async def _targets(self, request: Request) -> Response:
        _, port = request.scope["server"]
        name_servers = _name_server_targets(await self._name_servers.addresses(), port)
        groups = [*name_servers, *await _broker_targets(self._namesrv)]
        return Response(msgspec.json.encode(groups), media_type="application/json")


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


async def _broker_targets(namesrv: Namesrv) -> list[TargetGroup]:
    """All brokers, by the setting `broker_metrics_target`; the event loop runs between chunks."""
    target, groups = namesrv.settings.current.broker_metrics_target, list[TargetGroup]()
    if target:
        async for part in in_chunks(list(namesrv.manager.tables.broker_addr_table.values()), _CHUNK):
            groups.extend(_broker_target(target, group, number) for group in part for number in group.broker_addrs)
    return groups


def _broker_target(target: str, group: BrokerData, broker_id: int) -> TargetGroup:
    host = group.broker_addrs[broker_id].rpartition(":")[0]
    labels = {"cluster": group.cluster, "broker_name": group.broker_name, "broker_id": str(broker_id)}
    meta = {f"__meta_namesrv_{name}": value for name, value in labels.items()}
    return TargetGroup([target.format_map({"host": host, **labels})], {"__meta_namesrv_role": "broker", **meta})
