"""`migrate check`: whether brokers, clients and tools would notice the replacement of a NameServer by another one."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Final

import typer
from rich.console import RenderableType
from rich.text import Text

from namesrv_client.ctl import PROGRAM, ExitCode
from namesrv_client.ctl.commands.diff import DIFFERENCE_HEADS, difference_row
from namesrv_client.ctl.comparison import Difference, Fact, Facts, Kind, differences, same_servers
from namesrv_client.ctl.migration import (
    Judged,
    TopicResponses,
    judged,
    overview_facts,
    setting_facts,
    topic_differences,
    topic_facts,
)
from namesrv_client.ctl.nameserver import APACHE_REMARK_LINES, NameServer
from namesrv_client.ctl.options import Options, addresses_of, duration
from namesrv_client.ctl.output import Output, Report, counted, table
from namesrv_client.ctl.running import run
from namesrv_client.ctl.servers import Responses, Servers, reason
from namesrv_remoting.bodies.dialects import JSON
from namesrv_remoting.bodies.properties import PropertiesError, parse_properties
from namesrv_remoting.bodies.route import BrokerData, ClusterInfo, KVTable, TopicList
from namesrv_remoting.codes import CURRENT_VERSION, ORDER_TOPIC_CONFIG, RequestCode, ResponseCode
from namesrv_remoting.command import ExtFields, RemotingCommand
from namesrv_remoting.errors import (
    QueryNotFoundError,
    RemoteProtocolError,
    RemotingError,
    ResponseError,
    TopicNotExistError,
    response_error,
)

# RocketMQ's number of 4.9.3: for later versions servers use standard JSON, for this one Apache's server uses bare keys.
_OLD_VERSION: Final = 399
# Number of topics that are compared at the same time, with two requests to each server.
_TOPICS_AT_ONCE: Final = 16
_WATCH_SECONDS: Final = 2.0
# Requests that every server refuses, since no server has such a topic, value or request code.
_UNKNOWN_TOPIC: Final = "namesrvctl-migrate-check"
_REFUSED: Final[Mapping[str, tuple[int, ExtFields]]] = {
    "to an unknown KV value": (RequestCode.GET_KV_CONFIG, {"namespace": "namesrvctl", "key": "migrate-check"}),
    "to an unknown request": (9999, {}),
}

_View = dict[tuple[Kind, str], Facts]


@dataclass(frozen=True, slots=True)
class _Overview:
    """Groups, topics, facts and settings of one server, without the routes of its topics."""

    groups: Mapping[str, BrokerData]
    topics: frozenset[str]
    view: _View
    # None: the server denied them, or they cannot be read.
    order_config: Mapping[str, str] | None
    settings: Mapping[str, str] | None
    # A line for the order configuration and the settings, if they are None.
    not_compared: Sequence[str]
    # None from Apache's server, and if the server denies it.
    boot_id: str | None

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of brokers and topics."""
        instances = sum(len(group.broker_addrs) for group in self.groups.values())
        return {"brokers": instances, "topics": len(self.topics)}


def check(
    options: Options,
    source: Annotated[
        list[str],
        typer.Option(
            "--from", metavar="HOST[:PORT]", help="NameServer that is to be replaced; repeat it, or name several."
        ),
    ],
    target: Annotated[
        list[str],
        typer.Option("--to", metavar="HOST[:PORT]", help="NameServer that replaces it; likewise."),
    ],
    within: Annotated[
        str | None,
        typer.Option(
            "--within", metavar="TIME", help="Repeat until they agree, for so long at most (10m).", show_default=False
        ),
    ] = None,
) -> None:
    """Compare the tables and responses of NameServers in RocketMQ's protocol, before one replaces another.

    Brokers, clusters, the route of every topic as new and as old clients ask for it, order configuration, settings and
    refusals. Each difference says whether brokers, clients or tools notice it, and why. --watch repeats it until they
    agree. The servers are those of --from and --to; --server is not used.

    Exits with 0 if they agree in all that matters, and with 1 if not, or if one of them cannot be compared, or denies
    its settings or order configuration, or if two addresses are the same server.
    """
    sides = dict.fromkeys(addresses_of(source, "--from"), "from")
    targets = addresses_of(target, "--to")
    if both := [address for address in targets if address in sides]:
        raise typer.BadParameter(f"{both[0]} is also in --from", param_hint="--to")
    sides |= dict.fromkeys(targets, "to")
    at_most = None if within is None else duration(within, "--within")
    seconds = options.watch_seconds or (None if at_most is None else _WATCH_SECONDS)

    async def stream(servers: Servers, output: Output) -> int:
        began = servers.clock.monotonic()
        while True:
            report = await _compared(servers, sides)
            head = None if seconds is None else f"every {seconds:g} s until they agree; Ctrl-C ends"
            output.report(report, head=head)
            took = servers.clock.monotonic() - began
            is_last = seconds is None or (at_most is not None and took + seconds > at_most)
            if is_last or report.code is ExitCode.OK:
                return report.code
            await output.rest(servers.clock, seconds or 0.0)

    run(replace(options, addresses=tuple(sides)), stream, ExitCode.INTERRUPTED, may_repeat=True)


async def _compared(servers: Servers, sides: Mapping[str, str]) -> Report:
    overviews = await servers.ask(_overview)
    given = overviews.given
    differing: list[Difference] = []
    if len(given) == len(sides):
        by_topic, failures = await _topic_differences(servers.all, given)
        differing = _overview_differences(given) + by_topic
        overviews = Responses({**overviews.outcomes, **failures})
    verdicts = judged(differing)
    not_compared = [f"{server}: {what}" for server, each in given.items() for what in each.not_compared]
    same_server = same_servers({server: each.boot_id for server, each in given.items()})
    matter = any(one.matters for one in verdicts)
    is_whole = not not_compared and not same_server
    code = max(overviews.code(needs_all=True), ExitCode.NO if matter or not is_whole else ExitCode.OK)
    body = _table(verdicts, tuple(sides))
    if len(overviews.given) == len(sides) and (matter or is_whole):
        body.append(_summary(verdicts, given))
    return Report(
        {
            "agree": code is ExitCode.OK,
            "servers": [
                {"side": sides[each["server"]], **each} for each in overviews.documents(lambda each: each.counts)
            ],
            "differences": [one.document() for one in verdicts],
        },
        body,
        code,
        [*overviews.failures(), *not_compared, *same_server],
    )


def _overview_differences(given: Mapping[str, _Overview]) -> list[Difference]:
    """The differences but those of topics."""
    settings = setting_facts({server: each.settings or {} for server, each in given.items()})
    order = _order_facts({server: each.order_config for server, each in given.items()})
    return differences({server: each.view | order[server] | settings[server] for server, each in given.items()})


def _table(verdicts: Sequence[Judged], servers: Sequence[str]) -> list[RenderableType]:
    rows = [
        (
            Text("yes", style="red") if one.matters else Text("no", style="dim"),
            *difference_row(one.names, one.difference, servers),
            one.why,
        )
        for one in verdicts
    ]
    return table(("matters", *DIFFERENCE_HEADS, *servers, "why"), rows)


def _summary(verdicts: Sequence[Judged], given: Mapping[str, _Overview]) -> Text:
    matter = sum(one.matters for one in verdicts)
    counts = next(iter(given.values())).counts
    if matter:
        return Text("1 difference matters" if matter == 1 else f"{matter} differences matter", style="red")
    known = f"{counted(counts['brokers'], 'broker')}, {counted(counts['topics'], 'topic')}"
    harmless = f"; {counted(len(verdicts), 'difference')} without effect" if verdicts else ""
    return Text(f"{len(given)} servers agree: {known}{harmless}")


async def _overview(server: NameServer) -> _Overview:
    # A server that is not ready refuses a route request, and closes the connection, with all other requests on it.
    unrouted = await server.response_as_rocketmq(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": _UNKNOWN_TOPIC})
    if unrouted.code == ResponseCode.SYSTEM_ERROR:
        raise response_error(unrouted.code, unrouted.remark, unrouted.ext_fields)
    info, listed, *refusals = await asyncio.gather(
        _response_of(server, RequestCode.GET_BROKER_CLUSTER_INFO),
        _response_of(server, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
        *(server.response_as_rocketmq(code, fields) for code, fields in _REFUSED.values()),
    )
    clusters = JSON.read_response(ClusterInfo, info.body)
    not_compared: list[str] = []
    view: _View = dict(overview_facts(clusters))
    for what, response in zip(("to an unknown topic", *_REFUSED), (unrouted, *refusals), strict=True):
        # The lines of a remark beyond Apache's name the server and its own reason.
        remark = "\n".join((response.remark or "").splitlines()[:APACHE_REMARK_LINES])
        view["answer", what] = {Fact("code"): response.code, Fact("remark"): remark}
    return _Overview(
        clusters.broker_addr_table,
        frozenset(JSON.read_response(TopicList, listed.body).topic_list),
        view,
        await _comparable(_order_config(server), "order configuration", not_compared),
        await _comparable(_settings(server), "settings", not_compared),
        not_compared,
        await _boot_id(server, unrouted),
    )


async def _boot_id(server: NameServer, unrouted: RemotingCommand) -> str | None:
    """The boot id of our server, whose remarks have lines beyond Apache's; Apache's would close the connection."""
    if len((unrouted.remark or "").splitlines()) <= APACHE_REMARK_LINES:
        return None
    with suppress(ResponseError):
        return await server.boot_id()
    return None


async def _response_of(
    server: NameServer, code: int, fields: ExtFields | None = None, *, version: int = CURRENT_VERSION
) -> RemotingCommand:
    response = await server.response_as_rocketmq(code, fields, version=version)
    if response.code != ResponseCode.SUCCESS:
        raise response_error(response.code, response.remark, response.ext_fields)
    return response


async def _order_config(server: NameServer) -> Mapping[str, str]:
    try:
        response = await _response_of(server, RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": ORDER_TOPIC_CONFIG})
    except QueryNotFoundError:
        return {}
    return JSON.read_response(KVTable, response.body).table


async def _settings(server: NameServer) -> Mapping[str, str]:
    response = await _response_of(server, RequestCode.GET_NAMESRV_CONFIG)
    try:
        return parse_properties(response.body.decode(errors="backslashreplace"))
    except PropertiesError as error:
        raise RemoteProtocolError(str(error)) from error


async def _comparable(
    request: Awaitable[Mapping[str, str]], what: str, not_compared: list[str]
) -> Mapping[str, str] | None:
    """The values; None, with an entry in `not_compared`, if this account may not read them, or they are malformed."""
    try:
        return await request
    except (ResponseError, RemoteProtocolError) as error:
        not_compared.append(f"{what} not compared: {reason(error)}")
        return None


def _order_facts(configs: Mapping[str, Mapping[str, str] | None]) -> dict[str, _View]:
    """For each server, its order configuration; nothing unless all servers report theirs."""
    known = {server: config for server, config in configs.items() if config is not None}
    if len(known) < len(configs):
        return {server: {} for server in configs}
    return {
        server: {("order config", key): {Fact("value"): value} for key, value in config.items()}
        for server, config in known.items()
    }


async def _topic_differences(
    servers: Sequence[NameServer], given: Mapping[str, _Overview]
) -> tuple[list[Difference], dict[str, RemotingError]]:
    """Differences by topic, requested from all servers at the same moment; and the servers that failed meanwhile."""
    topics = sorted(frozenset().union(*(each.topics for each in given.values())))
    by_topic: dict[str, list[Difference]] = {}
    failures: dict[str, RemotingError] = {}
    waiting = iter(topics)
    show = _progress(len(topics))

    async def facts(server: NameServer, topic: str) -> Facts:
        overview = given[server.address]
        responses = TopicResponses(*await asyncio.gather(_route(server, topic), _route(server, topic, _OLD_VERSION)))
        return topic_facts(responses, overview.groups, is_listed=topic in overview.topics)

    async def compare_topics() -> None:
        for topic in waiting:
            results = await asyncio.gather(*(facts(server, topic) for server in servers), return_exceptions=True)
            by_server: dict[str, Facts] = {}
            for server, each in zip(servers, results, strict=True):
                if isinstance(each, RemotingError):
                    failures.setdefault(server.address, each)
                elif isinstance(each, BaseException):
                    raise each
                else:
                    by_server[server.address] = each
            if failures:
                return
            if differing := topic_differences(topic, by_server):
                by_topic[topic] = differing
            show()

    try:
        await asyncio.gather(*(compare_topics() for _ in range(min(_TOPICS_AT_ONCE, len(topics)))))
    finally:
        show(is_over=True)
    return [one for topic in sorted(by_topic) for one in by_topic[topic]], failures


async def _route(server: NameServer, topic: str, version: int = CURRENT_VERSION) -> bytes | None:
    """The body of 105 for a client of a version; None without a route."""
    try:
        response = await _response_of(server, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, version=version)
    except TopicNotExistError:
        return None
    return response.body


def _progress(total: int) -> Callable[..., None]:
    """Returns a function that shows the progress on a terminal, at each percent."""
    done = 0

    def show(*, is_over: bool = False) -> None:
        nonlocal done
        done += 1
        if not sys.stderr.isatty():
            return
        if is_over:
            sys.stderr.write("\r\x1b[K")
        elif done * 100 // total != (done - 1) * 100 // total:
            sys.stderr.write(f"\r{PROGRAM}: {done:,} of {counted(total, 'topic')} compared")
        sys.stderr.flush()

    return show
