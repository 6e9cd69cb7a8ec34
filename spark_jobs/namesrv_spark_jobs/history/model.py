"""What is asked of the logs, and what they answer: plain values, which travel between two processes as JSON."""

from typing import Final

import msgspec

from namesrv_spark_jobs.history.spans import Span

# what one page shows at most; the rest is counted
MOST_LANES: Final = 300
MOST_CLIENTS: Final = 500
MOST_CHANGES: Final = 500
# the shortest expiry that can be tried
LEAST_EXPIRY_MS: Final = 10_000
# of the strip: ten minutes each of a day
STRIP_BINS: Final = 144


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """A value of several fields."""


class Broker(Value, frozen=True):
    """One broker at one address."""

    cluster: str
    broker_name: str
    broker_id: int | None
    broker_addr: str

    def __str__(self) -> str:
        """As people name it, and as the report does."""
        return "/".join(str(part) for part in (self.cluster, self.broker_name, self.broker_id) if part is not None)


class Reading(Value, frozen=True):
    """What was read for an answer."""

    span: Span
    files: int
    lines: int
    bad: int
    read_ms: int


# --- questions


class TimelineQuestion(Value, frozen=True, tag="timeline"):
    """When each broker was registered on each server; `text` is part of a broker's name, address or server."""

    span: Span
    text: str = ""


class StripQuestion(Value, frozen=True, tag="strip"):
    """How regularly the brokers of one name were heard."""

    span: Span
    cluster: str
    broker_name: str


class RouteQuestion(Value, frozen=True, tag="route"):
    """The route of a topic at the end of a span, and how it came about within it."""

    span: Span
    topic: str


class WhatIfQuestion(Value, frozen=True, tag="what-if"):
    """What other settings would have meant."""

    span: Span
    expiry_ms: int
    scan_ms: int
    poll_ms: int


class ReportQuestion(Value, frozen=True, tag="report"):
    """The whole report on the hours that a what-if is of, with its settings among those that are tried."""

    span: Span
    expiry_ms: int
    scan_ms: int
    poll_ms: int


Question = TimelineQuestion | StripQuestion | RouteQuestion | WhatIfQuestion | ReportQuestion


# --- answers


class Run(Value, frozen=True):
    """One run of a server, and its settings where the log has them."""

    nameserver: str
    boot_id: str
    from_ms: int
    to_ms: int
    version: str | None
    scan_ms: int | None
    expiry_ms: int | None


class Life(Value, frozen=True):
    """One life of a broker on a server, as in docs/staleness.md."""

    # None: it began before what was read
    first_ok_ms: int | None
    last_ok_ms: int
    # the time by which it would have been heard again
    due_ms: int
    # None: it was open at `end_ms`, when the log or the server ended
    reason: str | None
    end_ms: int
    stale_ms: int
    is_false: bool


class Silence(Value, frozen=True):
    """A silence that the broker survived, of more than two thirds of its expiry."""

    from_ms: int
    to_ms: int


class Lane(Value, frozen=True):
    """One broker on one server, along the time."""

    broker: Broker
    nameserver: str
    lives: list[Life]
    silences: list[Silence]
    # when a removal was decided and not carried out
    fenced_ms: list[int]


class Timeline(Value, frozen=True, tag="timeline"):
    """All lanes that were asked for, and how many more there are."""

    reading: Reading
    span: Span
    runs: list[Run]
    lanes: list[Lane]
    left_out: int


class StripBin(Value, frozen=True):
    """The heartbeats of one part of the time."""

    number: int
    beats: int
    # before one of these
    longest_ms: int


class StripRow(Value, frozen=True):
    """What one server heard of one broker."""

    broker: Broker
    nameserver: str
    expiry_ms: int
    period_ms: int
    bins: list[StripBin]


class Strip(Value, frozen=True, tag="strip"):
    """One row for each broker, and server that heard it."""

    reading: Reading
    span: Span
    rows: list[StripRow]


class Member(Value, frozen=True):
    """A broker's name in a route, with the ids that it has there."""

    broker_name: str
    ids: list[int]


class Change(Value, frozen=True):
    """A change of a topic's route on one server."""

    at_ms: int
    nameserver: str
    boot_id: str
    revision: int
    # None: the log does not have all of it
    route: list[Member] | None
    came: list[Member]
    left: list[str]


class ServerRoute(Value, frozen=True):
    """What one server had at the moment."""

    nameserver: str
    is_up: bool
    # None: the logs that were read do not say
    change: Change | None


class Told(Value, frozen=True):
    """What one connection had got by then: the last revision it was given."""

    nameserver: str
    client: str
    told_ms: int
    # None: of a route that is not in the logs
    change: Change | None
    # the server had another route by then
    is_old: bool


class TopicPast(Value, frozen=True, tag="route"):
    """The route of a topic on each server at one moment, what each client had been told, and the changes until then."""

    reading: Reading
    topic: str
    at_ms: int
    servers: list[ServerRoute]
    clients: list[Told]
    clients_left_out: int
    # the latest first
    changes: list[Change]
    changes_left_out: int


class Outcome(Value, frozen=True):
    """What one setting would have meant."""

    expiry_ms: int | None
    scan_ms: int | None
    evictions: int
    false: int
    # staleness of the true ones, in the registry and with clients; None without any
    registry_p50_ms: int | None
    registry_p99_ms: int | None
    client_p50_ms: int | None
    client_p99_ms: int | None


class WhatIfs(Value, frozen=True, tag="what-if"):
    """The settings of the log, those that were asked for, and the same with other expiries."""

    reading: Reading
    poll_ms: int
    logged: Outcome
    asked: Outcome
    others: list[Outcome]


class Report(Value, frozen=True, tag="report"):
    """A page that stands alone."""

    html: str


class Failed(Value, frozen=True, tag="failed"):
    """It could not be answered; people read why."""

    why: str


Answer = Timeline | Strip | TopicPast | WhatIfs | Report | Failed
