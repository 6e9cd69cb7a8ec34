"""The changes of a topic's route in the logs, and the route that each client had received."""

import time
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from namesrv_spark_jobs.history.hours import LogsError, last_hour
from namesrv_spark_jobs.history.model import RouteRequest, TopicPast
from namesrv_spark_jobs.history.moments import moment_ms
from namesrv_spark_jobs.history.spans import MOST_MS, Span


def topic_past(logs: Sequence[str], topic: str, at: str | None) -> dict[str, Any]:
    """The `TopicPast` of the week before a moment, by default the end of the logs, as plain values.

    Raises:
        ValueError: the logs do not have lines of that time, or `at` is not a valid time.
        ModuleNotFoundError: the report is not installed.
    """
    from namesrv_spark_jobs.history.readings import Readings  # noqa: PLC0415 - with the report only

    last, now_ms = last_hour(logs), round(time.time() * 1000)
    end_ms = now_ms if last is None else last.to_ms
    at_ms = end_ms if at is None else moment_ms(at)
    with TemporaryDirectory(prefix="namesrvctl-") as folder, Readings(folder, logs) as readings:

        def past_at(moment: int) -> TopicPast:
            try:
                past = readings.result(RouteRequest(span=Span(moment - MOST_MS, moment), topic=topic))
            except LogsError as error:
                raise ValueError(str(error)) from error
            assert isinstance(past, TopicPast)  # noqa: S101 - the result of a RouteRequest
            return past

        past = past_at(at_ms)
        if at is None and end_ms > now_ms and all(change.at_ms <= now_ms for change in past.changes):
            # The last hour is not over, and no server runs at its end yet. A clock of a server may also be fast.
            past = past_at(now_ms)
    built: dict[str, Any] = msgspec.to_builtins(past)
    return built
