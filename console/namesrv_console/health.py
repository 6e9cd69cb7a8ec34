"""Health of the servers and brokers over time: the problems, when each began, and the brokers that have left."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NoReturn

from namesrv_client.health import (
    Affected,
    Gone,
    InstanceKey,
    Problem,
    names_without_shares,
    problems,
    removal_events,
    removal_reason,
    with_shares,
    write_shares,
)
from namesrv_console.acknowledged import Acknowledgement, Acknowledgements, extent_of
from namesrv_console.compared import Compared
from namesrv_console.hidden import Hidden
from namesrv_console.poller import MOST_REST_SECONDS, REST, Observed
from namesrv_console.state import BrokerKey, Cluster, ServerView
from namesrv_console.views.problems import (
    Verdict,
    missing_among,
    report_of,
    verdict,
)
from namesrv_remoting.bodies.extensions import Event
from namesrv_remoting.health import Kind
from namesrv_runtime.clock import Clock
from namesrv_runtime.log import event

logger: Final = logging.getLogger(__name__)

# Interval of judgements, since a master becomes silent without any response; with ten thousand brokers they rest as
# requests do.
JUDGEMENT_SECONDS: Final = 0.5
# Within this time after the console's start the servers have responded, and brokers have registered with a server that
# started at the same time: a problem that was not found by then is over.
SETTLED_SECONDS: Final = 60.0
# A broker that has left is remembered for an hour.
_GONE_SECONDS: Final = 3600.0
# The most brokers that are remembered after they left.
_MAX_GONE: Final = 1000


@dataclass(frozen=True, slots=True)
class Report:
    """The health of a cluster at one revision."""

    verdict: Verdict
    problems: Sequence[Problem]
    # Key of a problem -> its start on the console's clock.
    since: Mapping[tuple[Kind, str], float]
    # Brokers that have left, the last one first.
    gone: Sequence[Gone]
    # The acknowledged ones among the problems.
    acknowledged: Mapping[tuple[Kind, str], Acknowledgement]

    @property
    def missing(self) -> list[InstanceKey]:
        """Brokers that have left; one that unregistered itself is not missing."""
        return [one.key for one in self.gone if not one.is_planned]

    def since_of(self, problem: Problem) -> float:
        """The start of a problem."""
        return self.since[problem.key]


@dataclass(frozen=True, slots=True)
class _Left:
    """A broker that a server removed, with what shows the reason of the removal and the broker's return."""

    gone: Gone
    # Its last address, and the number of instances of its group before the removal.
    address: str
    instances: int
    # The server that removed it, the server's boot, and a number below that of the removal's event.
    server: str
    boot_id: str | None
    since_seq: int

    def is_back(self, view: ServerView, groups: Mapping[tuple[str, str], Collection[str]]) -> bool:
        """True if a server has the broker, or has it under another id and no fewer instances of its group."""
        addresses = groups.get(self.gone.group, ())
        return self.gone.key in view.brokers or (self.address in addresses and len(addresses) >= self.instances)

    def is_over(self, reporting: Sequence[tuple[ServerView, Mapping[tuple[str, str], Collection[str]]]]) -> bool:
        """True if all servers have the broker, or the one that removed it has it again."""
        back = [view.address for view, groups in reporting if self.is_back(view, groups)]
        return len(back) == len(reporting) or self.server in back


class Health:
    """Keeps the report on the observed cluster up to date."""

    def __init__(
        self, observed: Observed, compared: Compared, clock: Clock, acknowledgements: Acknowledgements
    ) -> None:
        self._observed = observed
        self._compared = compared
        self._clock = clock
        self._acknowledgements = acknowledgements
        # Address -> the last view of a server that reported its brokers.
        self._reported: dict[str, ServerView] = {}
        # Brokers that a server removed, and that are not registered with it again.
        self._left: dict[BrokerKey, _Left] = {}
        # Those of them that no reporting server has.
        self._gone: Sequence[Gone] = ()
        # Address -> routes of a server, and the write queues in them of broker groups with a problem, by broker name.
        self._counted: dict[str, tuple[object, dict[str, Affected]]] = {}
        # Problems that are over, and may still be acknowledged.
        self._ended: set[tuple[Kind, str]] = set()
        # Problems that may last on servers that have stopped responding; `_since` has their starts, too.
        self._hidden = Hidden[tuple[Kind, str]]()
        # Problems that were acknowledged before the console's start, and may have ended before it; none once settled.
        self._inherited = frozenset(acknowledgements.at(clock.wall()))
        self._settled_at = clock.monotonic() + SETTLED_SECONDS
        self._report = self._judged(observed.cluster, {})
        self._since = {**self._report.since}
        self._revision = observed.cluster.revision

    def __repr__(self) -> str:
        return (
            f"<Health [{self._report.verdict.level} | {len(self._report.problems)} problems | {len(self._gone)} gone]>"
        )

    async def run(self) -> NoReturn:
        """Judge the cluster at intervals until cancelled."""
        while True:
            before, began = self._report, self._clock.monotonic()
            self._look(self._observed.cluster)
            if before != self._report:
                self._observed.renew()
            rest = REST * (self._clock.monotonic() - began)
            await self._forget_ended()
            await self._clock.sleep(min(max(JUDGEMENT_SECONDS, rest), MOST_REST_SECONDS))

    def report(self, cluster: Cluster) -> Report:
        """The report on this cluster."""
        if cluster.revision != self._revision:
            self._look(cluster)
        return self._report

    def extent_of(self, problem: Problem, cluster: Cluster) -> frozenset[str]:
        """The extent of a problem now, which an acknowledgement of the problem has."""
        return extent_of(problem, self._compared.disagreements(cluster))

    async def acknowledge(self, problem: Problem, acknowledgement: Acknowledgement | None) -> None:
        """Acknowledge a problem, or end its acknowledgement. Raises OSError if that cannot be written to disk."""
        if acknowledgement is None:
            await self._acknowledgements.remove([problem.key])
        else:
            await self._acknowledgements.add(acknowledgement)
        self._observed.renew()

    def dismiss(self, key: BrokerKey) -> None:
        """Forget a broker that has left."""
        self._left.pop(key, None)
        self._forget([key])
        self._gone = [one for one in self._gone if one.key != key]
        self._observed.renew()

    async def _forget_ended(self) -> None:
        """End the acknowledgements of problems that are over: the next problem of this kind is a new one."""
        ended, self._ended = self._ended, set()
        try:
            await self._acknowledgements.remove(ended)
        except OSError as error:
            event(logger, logging.ERROR, "acknowledgement_not_written", error=str(error))

    def _look(self, cluster: Cluster) -> None:
        self._note_gone(cluster)
        last, known = self._report, self._since
        before = {*known}
        if self._clock.monotonic() >= self._settled_at:
            before |= self._inherited
            self._inherited = frozenset()
        self._report = self._judged(cluster, known)
        servers = {one.key: _servers_of(one, cluster) for one in last.problems}
        hidden = self._hidden.look(servers, self._report.since.keys(), cluster)
        self._since = {**self._report.since} | {key: known[key] for key in hidden}
        self._ended = (self._ended | before) - self._since.keys()
        self._revision = cluster.revision

    def _judged(self, cluster: Cluster, known_since: Mapping[tuple[Kind, str], float]) -> Report:
        now = self._clock.monotonic()
        gone = sorted(self._gone, key=lambda one: (-one.left_at, one.key))
        disagreements = self._compared.disagreements(cluster)
        missing, others = missing_among(disagreements, cluster)
        reports = [report_of(view, now) for view in cluster.servers]
        left = {one.key for one in gone}
        unreported = (view.brokers.keys() - left for view in cluster.servers if not view.reports_brokers)
        unknown = {key[:2] for keys in unreported for key in keys}
        found = problems(reports, gone=gone, unknown=unknown, missing=missing, disagreements=others)
        found = with_shares(found, self._shares(cluster.servers, names_without_shares(found)))
        known = self._acknowledgements.at(self._clock.wall())
        acknowledged = {
            problem.key: acknowledgement
            for problem in found
            if (acknowledgement := known.get(problem.key)) is not None
            and acknowledgement.covers(extent_of(problem, disagreements))
        }
        since: dict[tuple[Kind, str], float] = {
            one.key: known_since.get(one.key, now - (one.seconds or 0.0)) for one in found
        }
        topics = len(self._compared.topics(cluster).rows)
        judged = verdict(cluster, found, disagreements, acknowledged, topics=topics)
        return Report(judged, found, since, gone, acknowledged)

    def _shares(self, views: Sequence[ServerView], names: Collection[str]) -> dict[str, Affected]:
        """The affected write queues of broker groups; counted again only when routes have changed."""
        shares: dict[str, Affected] = {}
        for view in views:
            routes, known = self._counted.get(view.address, (None, {}))
            if routes is not view.topic_report.routes:
                known = {}
            if wanted := set(names) - known.keys():
                known |= write_shares(view.topic_report.routes.items(), wanted)
            self._counted[view.address] = view.topic_report.routes, known
            shares = known | shares
        return shares

    def _note_gone(self, cluster: Cluster) -> None:
        """Remember the brokers that have left servers since the last look, and forget those that are back."""
        now = self._clock.monotonic()
        reporting = [view for view in cluster.servers if view.reports_brokers]
        # A server that waits for its brokers after a start says nothing about brokers that it lacks.
        if not any(view.info is None or view.info.ready for view in reporting):
            return
        addresses = [(view, _addresses(view)) for view in reporting if self._left]
        self._left = {key: one for key, one in self._left.items() if not one.is_over(addresses)}
        # A broker whose servers have all become unreachable may still be there, until one of them responds without it.
        views = {view.address: view for view in reporting}
        for view in reporting:
            if (before := self._reported.get(view.address)) is not None:
                for key in sorted(before.brokers.keys() - view.brokers.keys()):
                    self._left[key] = self._removed(key, before, now)
        removed = {view.address: removal_events(view.events) for view in reporting if self._left}
        self._forget([key for key, one in self._left.items() if now - one.gone.left_at >= _GONE_SECONDS])
        self._left = {
            key: _with_reason(one, views, removed)
            for key, one in self._left.items()
            if now - one.gone.left_at < _GONE_SECONDS
        }
        while len(self._left) > _MAX_GONE:
            del self._left[next(iter(self._left))]
        addresses = [(view, _addresses(view)) for view in reporting if self._left]
        self._gone = [one.gone for one in self._left.values() if not any(one.is_back(*it) for it in addresses)]
        self._reported |= views

    def _forget(self, keys: Collection[BrokerKey]) -> None:
        """Forget that servers reported these brokers: a server that responds again without them removed them before."""
        for address, view in self._reported.items() if keys else ():
            brokers = {key: seen for key, seen in view.brokers.items() if key not in keys}
            self._reported[address] = replace(view, brokers=brokers)

    def _removed(self, key: BrokerKey, before: ServerView, now: float) -> _Left:
        """A broker that a server has removed since this view of it; another server's removal may show the reason."""
        known = self._left.get(key)
        affected = write_shares(before.topic_report.routes.items(), [key.broker_name]).get(key.broker_name)
        live = before.brokers[key].live
        topics = live.topics or 0
        if known is None:
            gone = Gone(key, now, "", topics, affected)
        else:
            gone = Gone(key, now, known.gone.reason, max(topics, known.gone.topics), affected or known.gone.affected)
            if before.info is None:
                # Apache's server reports no events, so that only the other one's show the reason.
                return replace(known, gone=gone)
        instances = sum(other[:2] == key[:2] for other in before.brokers)
        return _Left(gone, live.broker_addr, instances, before.address, before.boot_id, before.brokers_seq)


def _servers_of(problem: Problem, cluster: Cluster) -> Collection[str]:
    """The servers without which the problem is not known to be over; those of a comparison are all."""
    if problem.kind in ("disagreement", "missing_broker"):
        return [view.address for view in cluster.servers]
    return problem.servers


def _addresses(view: ServerView) -> dict[tuple[str, str], list[str]]:
    """The addresses of the instances of each broker group on a server."""
    groups: dict[tuple[str, str], list[str]] = {}
    for key, seen in view.brokers.items():
        groups.setdefault(key[:2], []).append(seen.live.broker_addr)
    return groups


def _with_reason(
    one: _Left, views: Mapping[str, ServerView], removed: Mapping[str, Mapping[InstanceKey, Event]]
) -> _Left:
    """The broker with the reason of its removal, once the server that removed it has reported the event."""
    view, found = views.get(one.server), removed.get(one.server, {}).get(one.gone.key)
    if view is None or view.boot_id != one.boot_id or found is None or found.seq <= one.since_seq:
        return one
    return replace(one, gone=replace(one.gone, reason=removal_reason(found)))
