"""The changes of a topic's route in the logs, and the route that each client had received."""

import time
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec

from namesrv_spark_jobs.history.hours import LogsError, last_hour
from namesrv_spark_jobs.history.model import RouteRequest, TopicPast
from namesrv_spark_jobs.history.moments import moment_ms
from namesrv_spark_jobs.history.spans import MOST_MS, Span

if TYPE_CHECKING:
    from namesrv_spark_jobs.history.reading.readings import Readings


def topic_past(logs: Sequence[str], topic: str, at: str | None) -> dict[str, Any]:
    """The `TopicPast` of the week before a moment, by default the end of the logs, as plain values.

    Raises:
        ValueError: the logs do not have lines of that time, or `at` is not a valid time.
        ModuleNotFoundError: the report is not installed.
    """
    from namesrv_spark_jobs.history.reading.readings import Readings  # noqa: PLC0415 - with the report only

    now_ms = round(time.time() * 1000)
    with TemporaryDirectory(prefix="namesrvctl-") as folder, Readings(folder, logs) as readings:
        try:
            at_ms = _end_ms(logs, readings, now_ms) if at is None else moment_ms(at)
            past = _past_at(at_ms, readings, topic)
            if at is None and at_ms > now_ms and all(change.at_ms <= now_ms for change in past.changes):
                # The last hour is not over, and no server runs at its end yet. A clock of a server may also be fast.
                past = _past_at(now_ms, readings, topic)
        except LogsError as error:
            raise ValueError(str(error)) from error
    built: dict[str, Any] = msgspec.to_builtins(past)
    return built


def _end_ms(logs: Sequence[str], readings: "Readings", now_ms: int) -> int:
    """The end of the last hour that has a folder, or of copied files without such folders."""
    last = last_hour(logs)
    return last.to_ms if last is not None else readings.end_ms() or now_ms


def _past_at(at_ms: int, readings: "Readings", topic: str) -> TopicPast:
    past = readings.result(RouteRequest(span=Span(at_ms - MOST_MS, at_ms), topic=topic))
    assert isinstance(past, TopicPast)  # noqa: S101 - the result of a RouteRequest
    return past
