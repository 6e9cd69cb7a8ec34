"""Readings of logs: the report's tables for a span of time, kept for further requests, and the results from them.

Only `namesrv_spark_jobs.transforms` defines registration periods, removals, routes and replays.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Self, TypeVar

from namesrv_spark_jobs.analysis import analyse
from namesrv_spark_jobs.engines.embedded.engine import EmbeddedEngine
from namesrv_spark_jobs.errors import MissingFileError, NothingToReadError
from namesrv_spark_jobs.frames import written_in
from namesrv_spark_jobs.history.hours import LogsError
from namesrv_spark_jobs.history.model import (
    PastRequest,
    Report,
    ReportRequest,
    Result,
    RouteRequest,
    StripRequest,
    TimelineRequest,
    WhatIfRequest,
)
from namesrv_spark_jobs.history.reading.files import files_of
from namesrv_spark_jobs.history.reading.read_span import MEMORY, ReadSpan, moments_of, read_span, runs_of
from namesrv_spark_jobs.history.reading.route_past import route_past
from namesrv_spark_jobs.history.reading.strip import strip
from namesrv_spark_jobs.history.reading.timeline import timeline
from namesrv_spark_jobs.history.reading.what_ifs import what_ifs
from namesrv_spark_jobs.history.spans import HOUR_MS, Span
from namesrv_spark_jobs.options import Options, WhatIf
from namesrv_spark_jobs.report.page import page

T = TypeVar("T")

# from 1970 to 2200
_EVERYTHING: Final = Span(HOUR_MS, 7_258_118_400_000)
# The lines before a span tell which brokers are registered at its start.
_BEFORE_MS: Final = HOUR_MS
# A reading of logs that are still being written is used for this time, or for `_REST` times the time that the reading
# took, if that is longer.
_FRESH_SECONDS: Final = 60.0
_REST: Final = 10
_MOST_READINGS: Final = 2


class Readings:
    """Context manager that answers requests; a request within the span of a recent reading is answered from it."""

    def __init__(self, folder: str, logs: Sequence[str]) -> None:
        self._folder = Path(folder)
        self._logs = logs
        # least recently used first
        self._kept: list[ReadSpan] = []

    def __repr__(self) -> str:
        return f"<Readings of {', '.join(self._logs)}: {[read.about.span for read in self._kept]}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop(self._kept)

    def result(self, request: PastRequest) -> Result:
        """The result for a request, after reading the logs if necessary. Raises LogsError."""
        return _retried(lambda: self._result(request))

    def end_ms(self) -> int | None:
        """The moment after the last line of a server; all logs are read. Raises LogsError."""
        read = _retried(lambda: self._reading(_EVERYTHING, is_exact=False))
        with written_in(read.engine):
            return max((run.to_ms + 1 for run in runs_of(read)), default=None)

    def _result(self, request: PastRequest) -> Result:
        if isinstance(request, ReportRequest):
            return self._report(request)
        # a replay covers everything that was read, so its reading must have exactly the span of the request
        read = self._reading(request.span, is_exact=isinstance(request, WhatIfRequest))
        with written_in(read.engine):
            match request:
                case TimelineRequest():
                    return timeline(read, request)
                case StripRequest():
                    return strip(read, request)
                case RouteRequest():
                    return route_past(read, request)
                case WhatIfRequest():
                    return what_ifs(read, request)

    def _reading(self, requested: Span, *, is_exact: bool) -> ReadSpan:
        span = _read_for(requested)
        for read in reversed(self._kept):
            is_fresh = time.monotonic() - read.began < max(_FRESH_SECONDS, _REST * read.seconds)
            is_wanted = span == read.about.span if is_exact else span in read.about.span
            if is_wanted and (is_fresh or span.to_ms <= read.about.read_ms - HOUR_MS):
                self._kept.remove(read)
                self._kept.append(read)
                return read
        newest = read_span(self._folder, self._files(span), span)
        self._kept.append(newest)
        # A reading whose span lies within that of the newest one is not needed any more.
        self._drop([read for read in self._kept[:-1] if read.about.span in newest.about.span])
        self._drop(self._kept[:-_MOST_READINGS])
        return newest

    def _drop(self, reads: Sequence[ReadSpan]) -> None:
        for read in list(reads):
            self._kept.remove(read)
            read.resources.close()

    def _files(self, span: Span) -> list[str]:
        files = files_of(self._logs, span)
        if not files:
            # The span of all logs begins in 1970.
            raise LogsError(f"no log {moments_of(span)}" if span.from_ms else f"no log in {', '.join(self._logs)}")
        return files

    def _report(self, request: ReportRequest) -> Report:
        span = _read_for(request.span)
        expiries = tuple(sorted({request.expiry_ms, *WhatIf().expiry_ms}))
        grid = WhatIf(expiry_ms=expiries, scan_ms=(request.scan_ms,), poll_ms=(request.poll_ms,))
        options = Options(since_ms=span.from_ms, until_ms=span.to_ms, poll_ms=request.poll_ms, what_if=grid)
        with (
            TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True) as folder,
            EmbeddedEngine(Path(folder), memory=MEMORY) as engine,
        ):
            try:
                analysis = analyse(engine, self._files(span), options, lambda _: None)
            except NothingToReadError:
                raise LogsError(f"no line of a log {moments_of(span)} could be read") from None
            return Report(html=page(analysis.summary, analysis.charts))


def _retried(read: Callable[[], T]) -> T:
    """The result of a function that reads logs. Raises LogsError."""
    try:
        return read()
    except MissingFileError:
        # the file was closed, which renames it, or removed after the files were listed
        try:
            return read()
        except MissingFileError as error:
            raise LogsError(f"{error}; try again") from error


def _read_for(requested: Span) -> Span:
    """The span to read for a request: whole hours, and one hour before."""
    return Span(requested.from_ms - _BEFORE_MS, requested.to_ms).hours()
