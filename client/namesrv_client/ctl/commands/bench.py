"""`bench`: how fast a server answers route questions, measured from here."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import typer

from namesrv_client.ctl import exit_codes
from namesrv_client.ctl.nameserver import NameServer
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Output, Report, complain
from namesrv_client.ctl.running import follow
from namesrv_client.ctl.servers import Answers, Servers, reason
from namesrv_client.ctl.tables import table
from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.codes import RequestCode, ResponseCode, SerializeType
from namesrv_remoting.errors import RemotingError
from namesrv_runtime.clock import SystemClock

MAX_SECONDS: Final = 60.0
MAX_CONNECTIONS: Final = 256
# asked for where there is no topic at all
_ABSENT_TOPIC: Final = "namesrvctl-bench"
_ANSWERS: Final = frozenset({ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST})


@dataclass(frozen=True, slots=True)
class Plan:
    """What one server is asked."""

    is_native: bool
    topic: str
    is_known: bool

    @property
    def protocol(self) -> str:
        """As `status` says it."""
        return "native" if self.is_native else "rocketmq"


@dataclass(slots=True)
class Figures:
    """What came of it."""

    plan: Plan
    connections: int
    seconds: float = 0.0
    # of each answer
    latencies: list[float] = field(default_factory=list)
    # answers that were refusals, and questions without an answer
    errors: int = 0
    last_error: str | None = None

    def milliseconds(self, share: float) -> float | None:
        """The latency that this share of the answers did not exceed."""
        return percentile(sorted(self.latencies), share)

    def document(self) -> dict[str, Any]:
        """Its members."""
        return {
            "protocol": self.plan.protocol,
            "topic": self.plan.topic,
            "topic_known": self.plan.is_known,
            "connections": self.connections,
            "seconds": round(self.seconds, 3),
            "requests": len(self.latencies),
            "requests_per_second": round(len(self.latencies) / self.seconds, 1) if self.seconds else 0.0,
            "p50_ms": self.milliseconds(0.5),
            "p99_ms": self.milliseconds(0.99),
            "max_ms": self.milliseconds(1.0),
            "errors": self.errors,
        }


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """The smallest value, in milliseconds, that this share of the values does not exceed; None of none."""
    if not ordered:
        return None
    # the nearest rank: ceil without a float's last bit in the way
    rank = -(-round(share * 1e6) * len(ordered) // 1_000_000)
    return round(ordered[max(0, rank - 1)] * 1000, 3)


def bench(
    options: Options,
    topic: Annotated[
        str | None,
        typer.Option("--topic", "-t", help="Topic to ask for; default: the first topic.", show_default=False),
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, max=MAX_SECONDS, help="How long to measure.")] = 3.0,
    connections: Annotated[
        int, typer.Option("--connections", min=1, max=MAX_CONNECTIONS, help="Number of connections.")
    ] = 16,
) -> None:
    """Measure how fast each server answers route questions.

    Each connection asks, waits for the answer and asks again. The figures include the Python of this machine, which
    may be the slower side. Exits with 1 if an answer was an error.
    """
    follow(
        options,
        lambda servers, output: _bench(servers, output, topic, seconds, connections),
        when_interrupted=exit_codes.INTERRUPTED,
    )


async def _bench(servers: Servers, output: Output, topic: str | None, seconds: float, connections: int) -> int:
    plans = await servers.ask(lambda server: _plan(server, topic))
    for server, plan in plans.given.items():
        known = "" if plan.is_known else ", which it does not know,"
        complain(
            [f"asking {server} for the route of {plan.topic}{known} over {connections} connections for {seconds:g} s"]
        )
    measured = {
        # one after the other: at once they would share this machine's processor
        server.address: await _measure(server, plans.given[server.address], seconds, connections)
        for server in servers.all
        if server.address in plans.given
    }
    answers = Answers(plans.servers, measured, plans.refused, plans.unreachable)
    failed = [
        f"{server}: {one.errors} errors, the last: {one.last_error}" for server, one in measured.items() if one.errors
    ]
    report = Report(
        {"servers": answers.documents(Figures.document)},
        table(
            ("server", "protocol", "requests", "requests/s", "p50 ms", "p99 ms", "max ms", "errors"),
            [_row(server, one.document()) for server, one in measured.items()],
        ),
        max(answers.code(), exit_codes.NO if failed else exit_codes.OK),
        [*answers.problems(), *failed],
    )
    output.report(report)
    return report.code


def _row(server: str, found: dict[str, Any]) -> tuple[object, ...]:
    members = ("protocol", "requests", "requests_per_second", "p50_ms", "p99_ms", "max_ms", "errors")
    return (server, *(found[name] for name in members))


async def _plan(server: NameServer, topic: str | None) -> Plan:
    if topic is None:
        topics = await server.topics()
        return Plan(await server.is_native(), topics[0] if topics else _ABSENT_TOPIC, bool(topics))
    is_known = (await server.routes([topic]))[topic] is not None
    return Plan(await server.is_native(), topic, is_known)


async def _measure(server: NameServer, plan: Plan, seconds: float, connections: int) -> Figures:
    figures = Figures(plan, connections)
    clients = [
        RemotingClient(server.address, clock=SystemClock(), connect_timeout_seconds=server.timeout_seconds)
        for _ in range(connections)
    ]
    try:
        # connecting does not count
        ready = await asyncio.gather(*(_question(client, plan, server.timeout_seconds) for client in clients))
        for error in filter(None, ready):
            figures.errors, figures.last_error = figures.errors + 1, error
        if not figures.errors:
            began = time.perf_counter()
            await asyncio.gather(*(_loop(one, figures, server.timeout_seconds, began + seconds) for one in clients))
            figures.seconds = time.perf_counter() - began
    finally:
        await asyncio.gather(*(client.close() for client in clients))
    return figures


async def _loop(client: RemotingClient, figures: Figures, timeout_seconds: float, until: float) -> None:
    while (asked := time.perf_counter()) < until:
        error = await _question(client, figures.plan, timeout_seconds)
        if error is not None:
            # a connection that failed once is left alone: asking again at once would only count the same error
            figures.errors, figures.last_error = figures.errors + 1, error
            return
        figures.latencies.append(time.perf_counter() - asked)


async def _question(client: RemotingClient, plan: Plan, timeout_seconds: float) -> str | None:
    """Ask once; what went wrong, None if nothing."""
    try:
        answer = await client.invoke_raw(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            ext_fields={"topic": plan.topic},
            timeout_seconds=timeout_seconds,
            serialize_type=SerializeType.MSGPACK if plan.is_native else SerializeType.JSON,
        )
    except RemotingError as error:
        return reason(error)
    return None if answer.code in _ANSWERS else f"code {answer.code}: {answer.remark}"
