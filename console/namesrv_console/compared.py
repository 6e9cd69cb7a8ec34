"""The comparison of all servers: the table of topics, and the disagreements with the time of their start.

The comparison is made once for all tabs, and again only for what changed.
"""

from collections.abc import KeysView, Sequence
from typing import Final, NoReturn

from namesrv_console.hidden import Hidden
from namesrv_console.poller import Observed
from namesrv_console.state import BrokerKey, Cluster, ServerView, TopicReport
from namesrv_console.views.differences import Disagreement, Key, disagreements
from namesrv_console.views.topics import TopicTable, topic_reports, topic_table
from namesrv_runtime.clock import Clock

# The interval of comparisons, since expected disagreements also depend on the time.
COMPARISON_SECONDS: Final = 1.0


class Compared:
    """The latest comparison of the servers."""

    def __init__(self, observed: Observed, clock: Clock) -> None:
        self._observed = observed
        self._clock = clock
        # The table, and the reports of the servers that it was made of.
        self._table = TopicTable()
        self._reports: dict[str, TopicReport] = {}
        self._found: Sequence[Disagreement] = ()
        self._looked_at = -COMPARISON_SECONDS
        # The brokers of each server at the last comparison: a disagreement about a broker that has left since is over.
        self._brokers: list[KeysView[BrokerKey]] = []
        # Start of each disagreement. None until all servers have responded: disagreements found by then have no known
        # start.
        self._since: dict[Key, float | None] | None = None
        # Disagreements that may last with servers that have stopped responding; `_since` has their starts, too.
        self._hidden = Hidden[Key]()

    def __repr__(self) -> str:
        return f"<Compared [{len(self._table.rows)} topics | {len(self._found)} disagreements]>"

    async def run(self) -> NoReturn:
        """Track when disagreements begin and end, with or without open pages, until cancelled."""
        while True:
            cluster = self._observed.cluster
            before = [(one.key, one.reason) for one in self._found]
            self._look(cluster)
            if before != [(one.key, one.reason) for one in self._found]:
                self._observed.renew()
            await self._clock.sleep(COMPARISON_SECONDS)
            if not self._found:
                # An expected disagreement may become unexpected without a change of the cluster, so only without
                # disagreements does the task wait for a change.
                await self._observed.changed_since(cluster.revision)

    def topics(self, cluster: Cluster) -> TopicTable:
        """The table of all topics on the servers now."""
        reports = topic_reports(cluster)
        # An unchanged report is the same object; comparing the routes of two reports would take long.
        if reports.keys() != self._reports.keys() or any(
            report is not self._reports[server] for server, report in reports.items()
        ):
            keys = cluster.broker_keys
            own_names = {key.cluster for key in keys} | {key.broker_name for key in keys}
            self._table = topic_table(reports, own_names, self._table)
            self._reports = reports
        return self._table

    def disagreements(self, cluster: Cluster) -> Sequence[Disagreement]:
        """The disagreements of the servers now."""
        before = self._table
        is_old = self.topics(cluster) is not before or self._brokers != _brokers_of(cluster)
        if is_old or self._clock.monotonic() - self._looked_at >= COMPARISON_SECONDS:
            self._look(cluster)
        return self._found

    def _look(self, cluster: Cluster) -> None:
        now = self._looked_at = self._clock.monotonic()
        self._brokers = _brokers_of(cluster)
        before, since_before = self._found, self._since
        self._found = disagreements(cluster, topic_reports(cluster), self.topics(cluster), since_before, now)
        since = {one.key: one.since for one in self._found}
        servers = {one.key: one.difference.values.keys() for one in before}
        hidden = self._hidden.look(servers, since.keys(), cluster)
        if since_before is not None:
            self._since = since | {key: since_before[key] for key in hidden if key in since_before}
        elif all(map(_has_responded, cluster.servers)):
            self._since = since


def _has_responded(view: ServerView) -> bool:
    """True if the server has reported its topics, has refused them, or is unreachable."""
    return view.reports_topics or "routes" in view.refused or view.failure is not None


def _brokers_of(cluster: Cluster) -> list[KeysView[BrokerKey]]:
    return [view.brokers.keys() for view in cluster.servers]
