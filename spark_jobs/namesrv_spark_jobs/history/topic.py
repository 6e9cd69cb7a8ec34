"""The changes of a topic's route in the logs, and the route that each client had received."""

import time
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from namesrv_spark_jobs.history.files import LogsError, last_hour
from namesrv_spark_jobs.history.model import RouteRequest
from namesrv_spark_jobs.history.spans import MOST_MS, Span, moment_ms


def topic_past(logs: Sequence[str], topic: str, at: str | None) -> dict[str, Any]:
    """The `TopicPast` of the week before a moment, by default the end of the logs, as plain values.

    Raises:
        ValueError: the logs do not have lines of that time, or `at` is not a valid time.
        ModuleNotFoundError: the report is not installed.
    """
    from namesrv_spark_jobs.history.readings import Readings  # noqa: PLC0415 - with the report only

    last, now_ms = last_hour(logs), round(time.time() * 1000)
    # The last hour of a running server is not over: no server runs at its end yet.
    end_ms = now_ms if last is None else min(now_ms, last.to_ms)
    at_ms = end_ms if at is None else moment_ms(at)
    request = RouteRequest(span=Span(at_ms - MOST_MS, at_ms), topic=topic)
    with TemporaryDirectory(prefix="namesrvctl-") as folder, Readings(folder, logs) as readings:
        try:
            past = readings.result(request)
        except LogsError as error:
            raise ValueError(str(error)) from error
    built: dict[str, Any] = msgspec.to_builtins(past)
    return built
