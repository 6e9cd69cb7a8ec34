"""Requests about the logs and their results: plain values, which two processes of the console exchange as JSON."""

from typing import Final, Literal

import msgspec

from namesrv_spark_jobs.history.spans import Span

# the most rows of each kind on one page; further rows are only counted
MOST_TIMELINE_ROWS: Final = 300
MOST_CLIENTS: Final = 500
MOST_CHANGES: Final = 500
# the shortest expiry that can be tried
LEAST_EXPIRY_MS: Final = 10_000
# bins of a strip: ten minutes each for a day
STRIP_BINS: Final = 144
# A server without a `stop` line counts as up for so long after its last line: a running one writes a line each scan.
_STILL_UP_MS: Final = 120_000


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of the values in this module."""


class Broker(Value, frozen=True):
    """One broker at one address."""

    cluster: str
    broker_name: str
    broker_id: int | None
    broker_addr: str

    def __str__(self) -> str:
        """The broker as cluster/name/id, as in the report."""
        return "/".join(str(part) for part in (self.cluster, self.broker_name, self.broker_id) if part is not None)


class Reading(Value, frozen=True):
    """The logs that were read for a result."""

    span: Span
    files: int
    lines: int
    bad: int
    # the time of the reading
    read_ms: int

    @property
    def until_ms(self) -> int:
        """The time until which the lines are known."""
        return min(self.span.to_ms, self.read_ms)


# --- requests


class TimelineRequest(Value, frozen=True, tag="timeline"):
    """When each broker was registered on each server; `text` is part of a broker's name, address or server."""

    span: Span
    text: str = ""


class StripRequest(Value, frozen=True, tag="strip"):
    """How regularly the heartbeats of the brokers of one name arrived."""

    span: Span
    cluster: str
    broker_name: str


class RouteRequest(Value, frozen=True, tag="route"):
    """The route of a topic at the end of a span, and its changes within the span."""

    span: Span
    topic: str


class WhatIfRequest(Value, frozen=True, tag="what-if"):
    """Evictions and staleness under other settings."""

    span: Span
    expiry_ms: int
    scan_ms: int
    poll_ms: int


class ReportRequest(Value, frozen=True, tag="report"):
    """The whole report for the hours of a what-if, with the settings of the what-if in its grid."""

    span: Span
    expiry_ms: int
    scan_ms: int
    poll_ms: int


PastRequest = TimelineRequest | StripRequest | RouteRequest | WhatIfRequest | ReportRequest


# --- results


class Run(Value, frozen=True):
    """One boot of a server."""

    nameserver: str
    boot_id: str
    # the times of its first and last line that were read
    from_ms: int
    to_ms: int
    # True: the server stopped, or the next lines of the boot are missing. False: it was killed, or runs on.
    has_ended: bool

    @property
    def up_until_ms(self) -> int:
        """The time until which the server counts as up, unless a later boot of it has begun."""
        return self.to_ms if self.has_ended else self.to_ms + _STILL_UP_MS


class RegistrationPeriod(Value, frozen=True):
    """One registration period of a broker on a server, as in docs/staleness.md."""

    # None: the period began before the lines that were read
    first_ok_ms: int | None
    last_ok_ms: int
    # the time at which the next heartbeat was due
    due_ms: int
    # None: the period was open at `end_ms`, when the log or the server ended
    reason: str | None
    end_ms: int
    stale_ms: int
    is_false: bool


class Silence(Value, frozen=True):
    """A near miss: an interval between two heartbeats of more than two thirds of the expiry.

    Its length is that of the silence, without the time during which the server was stopped.
    """

    from_ms: int
    to_ms: int


class TimelineRow(Value, frozen=True):
    """The registration periods of one broker on one server."""

    broker: Broker
    nameserver: str
    periods: list[RegistrationPeriod]
    silences: list[Silence]
    # the times of fenced removals
    fenced_ms: list[int]


class Timeline(Value, frozen=True, tag="timeline"):
    """The result for a TimelineRequest: the first rows, and the number of rows left out."""

    reading: Reading
    span: Span
    runs: list[Run]
    rows: list[TimelineRow]
    left_out: int


StripKind = Literal["regular", "late", "overdue", "removed"]


class StripBin(Value, frozen=True):
    """The heartbeats of one bin of the span, or the removal of the broker in it."""

    number: int
    heartbeats: int
    # the longest silence before one of them
    longest_ms: int
    kind: StripKind
    # the reason of a removal in the bin
    reason: str | None = None


class StripRow(Value, frozen=True):
    """The heartbeats of one broker that one server received."""

    broker: Broker
    nameserver: str
    bins: list[StripBin]


class Strip(Value, frozen=True, tag="strip"):
    """The result for a StripRequest: one row for each broker and each server with heartbeats of it."""

    reading: Reading
    span: Span
    rows: list[StripRow]


class Member(Value, frozen=True):
    """A broker name in a route, with its broker ids there."""

    broker_name: str
    ids: list[int]


class Change(Value, frozen=True):
    """A change of a topic's route on one server."""

    at_ms: int
    nameserver: str
    boot_id: str
    revision: int
    # None: the log has only differences, no whole route before them
    route: list[Member] | None
    # the brokers that came and left; no ids: they left with their group, and the log does not have them
    came: list[Member]
    left: list[Member]
    # groups whose brokers before the change are not in the log, so that these may have come or stayed
    now: list[Member]


class ServerRoute(Value, frozen=True):
    """The route on one server at the moment."""

    nameserver: str
    # False: no boot has lines around the moment, so that the server was down or its log is missing
    is_logged: bool
    # the last change up to the moment; None: unknown from the lines that were read
    change: Change | None


class ReceivedRoute(Value, frozen=True):
    """The last route that one connection received before the moment."""

    nameserver: str
    client: str
    received_ms: int
    # None: the revision is not in the logs
    change: Change | None
    # True: the server already had another revision
    is_old: bool


class TopicPast(Value, frozen=True, tag="route"):
    """The result for a RouteRequest: the route on each server and at each client, and the changes until then."""

    reading: Reading
    topic: str
    at_ms: int
    servers: list[ServerRoute]
    clients: list[ReceivedRoute]
    clients_left_out: int
    # the latest first
    changes: list[Change]
    changes_left_out: int


class Outcome(Value, frozen=True):
    """Evictions and staleness under one setting."""

    expiry_ms: int | None
    scan_ms: int | None
    # None: unknown, because no server's own settings are in the logs
    evictions: int | None
    false: int | None
    # staleness of the true evictions, at the NameServer and at clients; None without such evictions
    registry_p99_ms: int | None
    client_p50_ms: int | None
    client_p99_ms: int | None
    # its letter in the chart; empty for settings that are worse than another one
    letter: str = ""


class WhatIfs(Value, frozen=True, tag="what-if"):
    """The result for a WhatIfRequest: the logged settings, those of the request, and the same with other expiries."""

    reading: Reading
    poll_ms: int
    # Unannounced removals for another reason than silence (a closed connection), and the false ones among them. The
    # outcomes do not have them, since no setting changes them.
    others: int
    false_others: int
    logged: Outcome
    requested: Outcome
    expiries: list[Outcome]
    # the report's chart as SVG: staleness against false evictions, the logged settings marked; empty without staleness
    chart: str


class Report(Value, frozen=True, tag="report"):
    """The result for a ReportRequest: an HTML page that needs no other file."""

    html: str


class Failed(Value, frozen=True, tag="failed"):
    """The result for a request that cannot be answered, with the reason for people."""

    why: str


Result = Timeline | Strip | TopicPast | WhatIfs | Report | Failed
