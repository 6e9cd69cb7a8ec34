"""Problems in words, and the requests that find them."""

from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from namesrv_client.ctl import ExitCode
from namesrv_client.ctl.nameserver import MAX_EVENTS, NameServer
from namesrv_client.ctl.output import counted, lasting
from namesrv_client.ctl.servers import Responses, Servers, reason
from namesrv_client.health import (
    Affected,
    GroupKey,
    Problem,
    Server,
    broker_of,
    failure_state,
    is_starting,
    names_without_shares,
    problems,
    removals,
    state_of,
    with_shares,
    write_shares,
)
from namesrv_remoting.bodies.extensions import LiveBroker, ServerInfo
from namesrv_remoting.errors import RemotingError, ResponseError
from namesrv_remoting.health import Kind

# The problem, and its consequence. `lasts` is empty or " for" and the duration.
_TEXTS: Final[Mapping[Kind, tuple[str, str]]] = {
    "group_gone": ("all brokers of the group have left", "producers and consumers cannot reach {affected}"),
    "without_master": ("no master is registered{lasts}", "producers cannot write to {affected}"),
    "silent_master": (
        "no heartbeat of the master{lasts}, while a slave sends them",
        "producers may fail to write to {affected}",
    ),
    "server_unreachable": ("no NameServer reachable{lasts}", "its clients use other servers, or the routes they have"),
    "server_frozen": ("does not respond{lasts}", "its clients use other servers, or the routes they have"),
    "tls_failed": ("no TLS connection{lasts}", "peers with the same TLS settings cannot use it; its state is unknown"),
    "server_refuses": ("access denied{lasts}", "its state is unknown"),
    "not_reported": ("health of the broker groups is unknown", "a group may be without a master"),
    "server_asked": ("no response yet", "its state is unknown"),
    "broker_gone": ("the broker has left", "{topics} have one broker fewer"),
    "server_not_ready": ("not ready", "clients get no routes from it"),
    "no_brokers": ("no broker is registered", "clients get no routes from it"),
    "missing_broker": ("missing", "clients of this server cannot reach it for {topics}"),
    "disagreement": ("{differences} between servers", "clients of different servers get different routes"),
    "write_removed": ("write permission removed by an operator", "producers do not write to {affected}"),
    "disk_failing": ("a file cannot be written", "after a restart it may lack what it could not write"),
    "memory_budget": ("memory is nearly used up", "it refuses large registrations and connections soon"),
    "certificate_expires": (
        "certificate or revocation list",
        "once it has expired, peers that depend on it cannot connect",
    ),
}


def line_of(problem: Problem, *, shown_by: str = "") -> str:
    """The problem in a sentence, with the servers that report it, and a command that looks closer than `shown_by`."""
    what, consequence = words_of(problem)
    subject = [] if problem.subject in ("", *problem.servers) else [problem.subject]
    why = f": {problem.why}" if problem.why else ""
    where = [", ".join(problem.servers)] if problem.servers else []
    look = f"; see `{problem.command}`" if problem.command and shown_by not in problem.command.split() else ""
    return f"{': '.join([*where, problem.level, *subject])}: {what}{why}; {consequence}{look}"


def words_of(problem: Problem) -> tuple[str, str]:
    """The problem and its consequence, without names."""
    lasts = "" if problem.seconds is None else f" for {lasting(problem.seconds)}"
    what, consequence = _TEXTS[problem.kind]
    # Apache's server reports no number of topics.
    topics = counted(problem.count, "topic") if problem.count else "its topics"
    affected = f"its {topics}" if problem.count else topics
    if problem.affected is not None:
        affected = affected_text(problem.affected)
    differences = counted(problem.count, "difference")
    return what.format(lasts=lasts, differences=differences), consequence.format(affected=affected, topics=topics)


def affected_text(affected: Affected) -> str:
    """The queues, for example "8 of 24 write queues of 4 topics"."""
    queues = f"{affected.write_queues:,} of {counted(affected.all_write_queues, 'write queue')}"
    return f"{queues} of {affected.topic or counted(affected.topics, 'topic')}"


def document_of(problem: Problem) -> dict[str, Any]:
    """The members of a problem, for JSON and YAML."""
    what, consequence = words_of(problem)
    affected = None if problem.affected is None else problem.affected._asdict()
    return {
        "severity": problem.level,
        "kind": problem.kind,
        "subject": problem.subject,
        "servers": [*problem.servers],
        "since_seconds": problem.seconds,
        "what": what,
        "why": problem.why,
        "consequence": consequence,
        "affected": affected,
        "command": problem.command,
    }


def code_of(listed: Iterable[Problem]) -> ExitCode:
    """The exit code for these problems: NO if one is critical, or may hide a critical one (level `unknown`)."""
    return ExitCode.NO if any(one.level in {"critical", "unknown"} for one in listed) else ExitCode.OK


def listing(server: str, info: ServerInfo | None, brokers: Iterable[LiveBroker], seconds_ago: float = 0.0) -> Server:
    """The report of a server that listed its brokers so many seconds ago."""
    known = [broker_of(one, None if one.age_seconds is None else one.age_seconds + seconds_ago) for one in brokers]
    return Server(server, state_of(info), info=info, brokers=known, is_starting=is_starting(info, seconds_ago))


async def report_of(
    server: NameServer,
    info: ServerInfo | None,
    brokers: Sequence[LiveBroker],
    groups: Container[GroupKey] | None = None,
) -> Server:
    """The report of a server on all its broker groups, or on some of them."""
    wanted = (one for one in brokers if groups is None or (one.cluster, one.broker_name) in groups)
    report = listing(server.address, info, wanted)
    if info is None or all(one.kind != "without_master" for one in problems([report])):
        return report
    # The events say since when a master is missing.
    with suppress(ResponseError):
        events = (await server.events(0, MAX_EVENTS)).events
        return replace(report, removals=removals(events, info))
    return report


def reports_in(responses: Responses[Server]) -> list[Server]:
    """The report of each server, also of those that did not respond."""
    return [
        Server(server, failure_state(outcome), reason(outcome)) if isinstance(outcome, RemotingError) else outcome
        for server, outcome in responses.outcomes.items()
    ]


async def with_queues(servers: Servers, reports: Iterable[Server], listed: Sequence[Problem]) -> list[Problem]:
    """The problems with the affected write queues; routes are requested only if a broker group has a problem."""
    shares: dict[str, Affected] = {}
    wanted = names_without_shares(listed)
    reporting = {one.address for one in reports if one.brokers}
    for server in servers.all:
        if server.address in reporting and not wanted <= shares.keys():
            # Without access to the topics, the consequence has the number of topics only.
            with suppress(RemotingError):
                routes = await server.routes(await server.topics())
                given = ((topic, route) for topic, route in routes.items() if route is not None)
                shares = write_shares(given, wanted) | shares
    return with_shares(listed, shares)
