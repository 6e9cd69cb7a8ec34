"""`bench`: the rate and latency of a server's route responses, measured from this machine."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import typer

from namesrv_client.ctl import ExitCode
from namesrv_client.ctl.nameserver import NameServer
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Output, Report, complain, counted, table
from namesrv_client.ctl.running import run
from namesrv_client.ctl.servers import Servers, reason
from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.codes import RequestCode, ResponseCode, SerializeType
from namesrv_remoting.errors import RemotingError

MAX_SECONDS: Final = 60.0
MAX_CONNECTIONS: Final = 256
# Requested where the server has no topic.
_ABSENT_TOPIC: Final = "namesrvctl-bench"
_ANSWERS: Final = frozenset({ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST})


@dataclass(slots=True)
class Figures:
    """The request to one server, and the measurements."""

    is_native: bool
    topic: str
    is_known: bool
    seconds: float = 0.0
    # Latency of each response, in seconds.
    latencies: list[float] = field(default_factory=list)
    # Number of error responses and of requests without a response; the last such error.
    errors: int = 0
    last_error: str | None = None

    def document(self, connections: int) -> dict[str, Any]:
        """The members for JSON and YAML."""
        ordered = sorted(self.latencies)
        return {
            # The same words as in `status`.
            "protocol": "native" if self.is_native else "rocketmq",
            "topic": self.topic,
            "topic_known": self.is_known,
            "connections": connections,
            "seconds": round(self.seconds, 3),
            "requests": len(ordered),
            "requests_per_second": round(len(ordered) / self.seconds, 1) if self.seconds else 0.0,
            "p50_ms": percentile(ordered, 0.5),
            "p99_ms": percentile(ordered, 0.99),
            "max_ms": percentile(ordered, 1.0),
            "errors": self.errors,
        }


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """The smallest value, in milliseconds, that this share of the values does not exceed; None without values."""
    if not ordered:
        return None
    # Nearest rank: a ceiling that the last bit of a float cannot change.
    rank = -(-round(share * 1e6) * len(ordered) // 1_000_000)
    return round(ordered[max(0, rank - 1)] * 1000, 3)


def bench(
    options: Options,
    topic: Annotated[
        str | None,
        typer.Option("--topic", "-t", help="Topic of the requests; default: the first topic.", show_default=False),
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, max=MAX_SECONDS, help="How long to measure.")] = 3.0,
    connections: Annotated[
        int, typer.Option("--connections", min=1, max=MAX_CONNECTIONS, help="Number of connections.")
    ] = 16,
) -> None:
    """Measure how fast each server answers route requests.

    Each connection sends a request, waits for the response and sends the next one. The figures include the Python of
    this machine, which may be the slower side. Exits with 1 after an error response.
    """

    async def measure(servers: Servers, output: Output) -> int:
        plans = await servers.ask(lambda server: _plan(server, topic))
        for server in servers.all:
            # Servers are measured one after the other, since at once they would share this machine's processor.
            if (figures := plans.given.get(server.address)) is not None:
                known = "" if figures.is_known else ", which it does not know,"
                how = f"over {counted(connections, 'connection')} for {seconds:g} s"
                complain([f"asking {server.address} for the route of {figures.topic}{known} {how}"])
                await _measure(server, figures, seconds, connections)
        given = plans.given.items()
        failed = [f"{at}: {counted(it.errors, 'error')}, the last: {it.last_error}" for at, it in given if it.errors]
        rows = {server: figures.document(connections) for server, figures in given}
        names = ("protocol", "requests", "requests_per_second", "p50_ms", "p99_ms", "max_ms", "errors")
        heads = {name.replace("_per_second", "/s").replace("_ms", " ms"): name for name in names}
        report = Report(
            {"servers": plans.documents(lambda figures: figures.document(connections))},
            table(
                ("server", *heads),
                [(server, *(it[name] for name in heads.values())) for server, it in rows.items()],
            ),
            max(plans.code(), ExitCode.NO if failed else ExitCode.OK),
            [*plans.failures(), *failed],
        )
        output.report(report)
        return report.code

    run(options, measure, ExitCode.INTERRUPTED)


async def _plan(server: NameServer, topic: str | None) -> Figures:
    if topic is None:
        topics = await server.topics()
        return Figures(await server.is_native(), topics[0] if topics else _ABSENT_TOPIC, bool(topics))
    is_known = (await server.routes([topic]))[topic] is not None
    return Figures(await server.is_native(), topic, is_known)


async def _measure(server: NameServer, figures: Figures, seconds: float, connections: int) -> None:
    clients = [server.new_client() for _ in range(connections)]

    async def answers(client: RemotingClient) -> bool:
        """True if the server answered a request."""
        try:
            response = await client.invoke_raw(
                RequestCode.GET_ROUTEINFO_BY_TOPIC,
                ext_fields={"topic": figures.topic},
                timeout_seconds=server.timeout_seconds,
                serialize_type=SerializeType.MSGPACK if figures.is_native else SerializeType.JSON,
            )
            error = None if response.code in _ANSWERS else f"code {response.code}: {response.remark}"
        except RemotingError as failure:
            error = reason(failure)
        if error is not None:
            figures.errors, figures.last_error = figures.errors + 1, error
        return error is None

    async def ask_on(client: RemotingClient, until: float) -> None:
        # A connection stops after its first failure, since another request at once would only count the same error
        # again.
        while (started := time.perf_counter()) < until and await answers(client):
            figures.latencies.append(time.perf_counter() - started)

    try:
        # Connecting is not measured.
        if all(await asyncio.gather(*map(answers, clients))):
            began = time.perf_counter()
            await asyncio.gather(*(ask_on(client, began + seconds) for client in clients))
            figures.seconds = time.perf_counter() - began
    finally:
        await asyncio.gather(*(client.close() for client in clients))
