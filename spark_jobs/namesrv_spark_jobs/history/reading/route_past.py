"""The past of a topic: changes of its route, and the route that each client had received."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from namesrv_spark_jobs.frames import F
from namesrv_spark_jobs.history.model import (
    MOST_CHANGES,
    MOST_CLIENTS,
    Change,
    Member,
    ReceivedRoute,
    RouteRequest,
    Run,
    ServerRoute,
    TopicPast,
)
from namesrv_spark_jobs.history.reading.read_span import ReadSpan, runs_of
from namesrv_spark_jobs.transforms import clients
from namesrv_spark_jobs.transforms.output_rows import whole_ms


def route_past(read: ReadSpan, request: RouteRequest) -> TopicPast:
    """The route on each server at the end of the span, and the last route of each client of a running server."""
    at_ms = request.span.to_ms
    runs = {row["boot"]: run for row, run in zip(read.tables.boot_rows, runs_of(read), strict=True)}
    changes = _changes(read, request.topic, runs)
    up = _up_at(at_ms, runs)
    # the changes of a boot are in the order of their revisions, so the last one stays
    current = {boot: change for boot in up for change in changes[boot].values() if change.at_ms <= at_ms}
    boot_of = {run.nameserver: boot for boot, run in up.items()}
    servers = [
        ServerRoute(nameserver=name, is_logged=name in boot_of, change=current.get(boot_of.get(name, 0)))
        for name in sorted({run.nameserver for run in runs.values()})
    ]
    received = _received(read, request, up, changes, current)
    shown = [change for of_boot in changes.values() for change in of_boot.values() if change.at_ms <= at_ms]
    shown.sort(key=lambda change: (-change.at_ms, change.nameserver, -change.revision))
    return TopicPast(
        reading=read.about,
        topic=request.topic,
        at_ms=at_ms,
        servers=servers,
        clients=received[:MOST_CLIENTS],
        clients_left_out=max(0, len(received) - MOST_CLIENTS),
        changes=shown[:MOST_CHANGES],
        changes_left_out=max(0, len(shown) - MOST_CHANGES),
    )


def _up_at(at_ms: int, runs: Mapping[int, Run]) -> dict[int, Run]:
    """The boot of each server that was up at a moment."""
    last: dict[str, int] = {}
    for boot, run in sorted(runs.items(), key=lambda it: it[1].from_ms):
        if run.from_ms <= at_ms:
            last[run.nameserver] = boot
    return {boot: runs[boot] for boot in last.values() if at_ms <= runs[boot].up_until_ms}


def _changes(read: ReadSpan, topic: str, runs: Mapping[int, Run]) -> dict[int, dict[int, Change]]:
    """The changes of a topic's route by boot and revision, in the order of revisions, each with the route after it."""
    rest = read.tables.rest
    lines = rest.filter(F.col("event") == "route").groupBy("boot", "revision").agg(F.min("mono").alias("mono"))
    by_boot: dict[int, dict[int, Change]] = defaultdict(dict)
    routes: dict[int, dict[str, list[int]]] = defaultdict(dict)
    next_whole: dict[int, int | None] = {}
    # A boot begins without routes; without its start, the route before the first whole one is unknown.
    known = {row["boot"]: not row["is_cut"] for row in read.tables.boot_rows}
    revisions = clients.routes(rest, [topic]).join(lines, on=["boot", "revision"], how="inner").collect()
    for row in sorted((row.asDict(recursive=True) for row in revisions), key=lambda row: (row["boot"], row["turn"])):
        boot = row["boot"]
        if boot not in runs:
            continue
        at_ms = whole_ms(row["mono"] + read.offsets[boot] * 1000)
        route, was_known = routes[boot], known[boot]
        given = {one["name"]: sorted(one["ids"] or ()) for one in row["set"] or ()}
        gone = set(route) - set(given) if next_whole.get(boot) == row["turn"] else set(row["unset"] or ())
        next_whole[boot] = row["next_whole"]
        known[boot] = row["is_known"]
        before, routes[boot] = route, {name: ids for name, ids in (route | given).items() if name not in gone}
        certain = given if was_known else given.keys() & before.keys()
        by_boot[boot][row["revision"]] = Change(
            at_ms=at_ms,
            nameserver=runs[boot].nameserver,
            boot_id=runs[boot].boot_id,
            revision=row["revision"],
            route=_members(routes[boot]) if row["is_known"] else None,
            came=_members({name: _without(given[name], before.get(name)) for name in certain}),
            left=_members({name: _without(before[name], given[name]) for name in certain if name in before})
            + [Member(broker_name=name, ids=before.get(name, [])) for name in sorted(gone)],
            now=_members({name: ids for name, ids in given.items() if name not in certain}),
        )
    return by_boot


def _members(route: Mapping[str, list[int]]) -> list[Member]:
    return [Member(broker_name=name, ids=route[name]) for name in sorted(route) if route[name]]


def _without(ids: Sequence[int], others: Sequence[int] | None) -> list[int]:
    return [one for one in ids if one not in (others or ())]


def _received(
    read: ReadSpan,
    request: RouteRequest,
    up: Mapping[int, Run],
    changes: Mapping[int, Mapping[int, Change]],
    current: Mapping[int, Change],
) -> list[ReceivedRoute]:
    """The last route that each open connection had received; those with an old route first."""
    rest, at = read.tables.rest, request.span.to_ms * 1000
    clocks = read.tables.boots.filter(F.col("boot").isin(*up)).select("boot", "offset_ms") if up else None
    if clocks is None:
        return []
    is_past = F.col("mono") + F.col("offset_ms") * 1000 <= at
    given = clients.given(rest, "served", [request.topic]).join(clocks, on="boot", how="inner").filter(is_past)
    last = given.groupBy("boot", "client").agg(F.max(F.struct("mono", "seq", "revision")).alias("last"))
    gone = rest.filter(F.col("event") == "client_gone").join(clocks, on="boot", how="inner").filter(is_past)
    staying = last.join(gone.select("boot", "client"), on=["boot", "client"], how="left_anti")
    rows = [row.asDict(recursive=True) for row in staying.collect()]
    routes = [
        ReceivedRoute(
            nameserver=up[row["boot"]].nameserver,
            client=row["client"] or "",
            received_ms=whole_ms(row["last"]["mono"] + read.offsets[row["boot"]] * 1000),
            change=changes[row["boot"]].get(row["last"]["revision"]),
            is_old=row["boot"] in current and row["last"]["revision"] != current[row["boot"]].revision,
        )
        for row in rows
    ]
    return sorted(routes, key=lambda one: (not one.is_old, one.nameserver, one.received_ms, one.client))
