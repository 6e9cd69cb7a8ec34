"""The last quarter of an hour of the brokers on each server, from the servers' events and their last responses."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from namesrv_client.health import instance_of, removal_reason
from namesrv_console.past import timeline_rows
from namesrv_console.state import BrokerKey, Cluster, ServerView
from namesrv_remoting.bodies.extensions import Event
from namesrv_spark_jobs.history.model import Broker, RegistrationPeriod, TimelineRow
from namesrv_spark_jobs.history.spans import MINUTE_MS, Span

_LENGTH_MS: Final = 15 * MINUTE_MS
# The span moves on in steps, so that the picture of brokers to which nothing happens stays as it is.
_STEP_MS: Final = 15_000
_HEARTBEAT_MS: Final = 30_000
_MOST_BROKERS: Final = 10
_SHOWN_EVENTS: Final = ("register", "evict", "fenced")


def recent_picture(
    cluster: Cluster, wall: float, moment_ms: Callable[[float], int], group: Iterable[BrokerKey] | None = None
) -> Mapping[str, Any]:
    """Rows of these brokers, or of those to which something happened last; and the ticks of the axis."""
    span = recent_span(round(wall * 1000))
    wanted = changed_brokers(cluster, span, _MOST_BROKERS, moment_ms) if group is None else set(group)
    rows = recent_rows(cluster, wanted, span, moment_ms)
    return {
        "rows": [(timeline_rows.drawn(row, span), ()) for row in rows],
        "ticks": timeline_rows.ticks(span),
    }


def recent_span(now_ms: int) -> Span:
    """The last quarter of an hour, up to the end of the current step."""
    to_ms = -(-now_ms // _STEP_MS) * _STEP_MS
    return Span(to_ms - _LENGTH_MS, to_ms)


def changed_brokers(cluster: Cluster, span: Span, most: int, moment_ms: Callable[[float], int]) -> list[BrokerKey]:
    """The brokers with an event in the span; of too many those with the last removals, else with the last events."""
    last: dict[BrokerKey, tuple[int, int]] = {}
    for view in cluster.servers:
        for key, events in _by_broker(view, moment_ms).items():
            times = [(event.ts_ms or 0, event.event) for event in events if event.ts_ms in span]
            removed = max((at for at, name in times if name == "evict"), default=0)
            if times:
                last[key] = max(last.get(key, (0, 0)), (removed, max(times)[0]))
    return sorted(last, key=lambda key: (last[key], key), reverse=True)[:most]


def recent_rows(
    cluster: Cluster, wanted: Collection[BrokerKey], span: Span, moment_ms: Callable[[float], int]
) -> list[TimelineRow]:
    """The rows of brokers on each server that has or had them; `moment_ms` converts the console's clock."""
    native = [(view, _by_broker(view, moment_ms)) for view in cluster.servers if view.info is not None]
    return [
        _row(view, key, events.get(key, ()), span, moment_ms)
        for key in sorted(wanted)
        for view, events in native
        if key in events or key in view.brokers
    ]


def _by_broker(view: ServerView, moment_ms: Callable[[float], int]) -> dict[BrokerKey, list[Event]]:
    found: dict[BrokerKey, list[Event]] = {}
    for event in view.events_on_console_clock(moment_ms):
        key = instance_of(event)
        if event.event in _SHOWN_EVENTS and event.ts_ms is not None and key is not None:
            found.setdefault(BrokerKey(*key), []).append(event)
    return found


def _row(
    view: ServerView, key: BrokerKey, events: Sequence[Event], span: Span, moment_ms: Callable[[float], int]
) -> TimelineRow:
    known_ms = view.on_console_clock(_known_since_ms(view), moment_ms)
    known_ms = span.from_ms if known_ms is None else known_ms
    # The start of the current registration period; None after the broker has left.
    began = None if events and events[0].event == "register" else known_ms
    periods: list[RegistrationPeriod] = []
    for event in events:
        at_ms = event.ts_ms or 0
        if event.event == "register":
            began = at_ms if began is None else began
        elif event.event == "evict":
            periods.append(_ended(known_ms if began is None else began, at_ms, event))
            began = None
    seen = view.brokers.get(key)
    if began is not None and seen is not None:
        last_ok_ms = began if seen.last_seen_at is None else moment_ms(seen.last_seen_at)
        periods.append(_period(began, last_ok_ms, max(began, _last_report_ms(view, span, moment_ms)), None))
    return TimelineRow(
        # Without its address, which may differ between servers: a page has one heading for the rows of a broker.
        broker=Broker(cluster=key.cluster, broker_name=key.broker_name, broker_id=key.broker_id, broker_addr=""),
        nameserver=view.name,
        periods=periods,
        silences=[],
        fenced_ms=[event.ts_ms or 0 for event in events if event.event == "fenced"],
    )


def _known_since_ms(view: ServerView) -> int | None:
    """The time since which all events of a server are known: its start, or the first event; on the server's clock."""
    started_ms = None if view.info is None else view.info.started_ms
    first = view.events[0] if view.events else None
    return started_ms if first is None or first.seq <= 1 else first.ts_ms


def _last_report_ms(view: ServerView, span: Span, moment_ms: Callable[[float], int]) -> int:
    """The time up to which a registered broker is known to be registered."""
    if view.is_reachable or view.answered_at is None:
        return span.to_ms - _STEP_MS
    return moment_ms(view.answered_at)


def _ended(began: int, at_ms: int, event: Event) -> RegistrationPeriod:
    silent_ms = event.fields.get("silent_ms")
    return _period(
        began, at_ms - (silent_ms if isinstance(silent_ms, int) else 0), at_ms, removal_reason(event) or "removed"
    )


def _period(began: int, last_ok_ms: int, end_ms: int, reason: str | None) -> RegistrationPeriod:
    return RegistrationPeriod(
        first_ok_ms=began,
        last_ok_ms=last_ok_ms,
        due_ms=last_ok_ms + _HEARTBEAT_MS,
        reason=reason,
        end_ms=end_ms,
        stale_ms=0 if reason is None else end_ms - last_ok_ms,
        is_false=False,
    )
