"""Health of the servers and brokers over time: the problems, when each began, and the brokers that have left."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn

from namesrv_client.health import (
    Affected,
    Gone,
    InstanceKey,
    Problem,
    names_without_shares,
    problems,
    with_shares,
    write_shares,
)
from namesrv_console.acknowledged import Acknowledgement, Acknowledgements, extent_of
from namesrv_console.compared import Compared
from namesrv_console.gone import GoneBrokers
from namesrv_console.hidden import Hidden
from namesrv_console.poller import MOST_REST_SECONDS, REST, Observed
from namesrv_console.state import BrokerKey, Cluster, ServerView
from namesrv_console.views.differences import Disagreement
from namesrv_console.views.problems import Verdict, missing_among, report_of, verdict
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
    # Revision of the cluster.
    revision: int = field(compare=False)

    @property
    def missing(self) -> list[InstanceKey]:
        """Brokers that have left; one that unregistered itself is not missing."""
        return [one.key for one in self.gone if not one.is_planned]

    def since_of(self, problem: Problem) -> float:
        """The start of a problem."""
        return self.since[problem.key]


class Health:
    """Keeps the report on the observed cluster up to date."""

    def __init__(
        self, observed: Observed, compared: Compared, clock: Clock, acknowledgements: Acknowledgements
    ) -> None:
        self._observed = observed
        self._compared = compared
        self._clock = clock
        self._acknowledgements = acknowledgements
        self._gone = GoneBrokers()
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

    def __repr__(self) -> str:
        report = self._report
        return f"<Health [{report.verdict.level} | {len(report.problems)} problems | {len(report.gone)} gone]>"

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
        if cluster.revision != self._report.revision:
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
        self._gone.dismiss(key)
        self._observed.renew()

    async def _forget_ended(self) -> None:
        """End the acknowledgements of problems that are over: the next problem of this kind is a new one."""
        ended, self._ended = self._ended, set()
        try:
            await self._acknowledgements.remove(ended)
        except OSError as error:
            event(logger, logging.ERROR, "acknowledgement_not_written", error=str(error))

    def _look(self, cluster: Cluster) -> None:
        """Judge the cluster, and note which problems are over."""
        now, before, since_before = self._clock.monotonic(), self._report, self._since
        self._gone.look(cluster.servers, now)
        self._report = self._judged(cluster, since_before)
        servers = {one.key: _servers_of(one, cluster) for one in before.problems}
        hidden = self._hidden.look(servers, self._report.since.keys(), cluster)
        self._since = {**self._report.since} | {key: since_before[key] for key in hidden}
        self._ended |= since_before.keys()
        if now >= self._settled_at:
            self._ended |= self._inherited
            self._inherited = frozenset()
        self._ended -= self._since.keys()

    def _judged(self, cluster: Cluster, known_since: Mapping[tuple[Kind, str], float]) -> Report:
        now = self._clock.monotonic()
        disagreements = self._compared.disagreements(cluster)
        found = self._problems(cluster, disagreements, now)
        since = {one.key: known_since.get(one.key, now - (one.seconds or 0.0)) for one in found}
        acknowledged = self._acknowledged(found, disagreements)
        topics = len(self._compared.topics(cluster).rows)
        judged = verdict(cluster, found, disagreements, acknowledged, topics=topics)
        return Report(judged, found, since, self._gone.brokers, acknowledged, cluster.revision)

    def _problems(self, cluster: Cluster, disagreements: Sequence[Disagreement], now: float) -> Sequence[Problem]:
        gone = self._gone.brokers
        gone_keys = {one.key for one in gone}
        # Groups of which a server that does not report its brokers now had an instance: the server may still have it.
        unknown = {
            key[:2] for view in cluster.servers if not view.reports_brokers for key in view.brokers.keys() - gone_keys
        }
        missing, others = missing_among(disagreements, cluster)
        reports = [report_of(view, now) for view in cluster.servers]
        found = problems(reports, gone=gone, unknown=unknown, missing=missing, disagreements=others)
        return with_shares(found, self._shares(cluster.servers, names_without_shares(found)))

    def _acknowledged(
        self, found: Sequence[Problem], disagreements: Sequence[Disagreement]
    ) -> dict[tuple[Kind, str], Acknowledgement]:
        """The acknowledgements of these problems that cover the extent of their problem."""
        known = self._acknowledgements.at(self._clock.wall())
        return {
            one.key: known[one.key]
            for one in found
            if one.key in known and known[one.key].covers(extent_of(one, disagreements))
        }

    def _shares(self, views: Sequence[ServerView], names: Collection[str]) -> dict[str, Affected]:
        """The affected write queues of broker groups; counted again only when routes have changed."""
        shares: dict[str, Affected] = {}
        for view in views:
            routes = view.topic_report.routes
            counted_routes, counted = self._counted.get(view.address, (None, {}))
            if counted_routes is not routes:
                counted = {}
            if wanted := set(names) - counted.keys():
                counted |= write_shares(routes.items(), wanted)
            self._counted[view.address] = routes, counted
            shares = counted | shares
        return shares


def _servers_of(problem: Problem, cluster: Cluster) -> Collection[str]:
    """The servers without which the problem is not known to be over; those of a comparison are all."""
    if problem.kind in ("disagreement", "missing_broker"):
        return [view.address for view in cluster.servers]
    return problem.servers
