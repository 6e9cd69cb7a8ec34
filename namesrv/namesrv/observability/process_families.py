"""Prometheus metrics of the process.

The names that every client library uses. The library's own collector lists all open files in one go, which with ten
thousand connections would keep the loop for milliseconds; their number is counted by `survey.py` instead.
"""

import math
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from namesrv.context import Namesrv
from namesrv.observability.survey import Survey

_STAT: Final = Path("/proc/self/stat")
# in what follows the name of the program in /proc/PID/stat
_START_TICKS, _VIRTUAL_BYTES, _RESIDENT_PAGES = 19, 20, 21


def process_families(_: Namesrv, found: Survey) -> Iterator[Metric]:
    """Time, memory and files."""
    times = os.times()
    yield CounterMetricFamily("process_cpu_seconds", "CPU time, in user and kernel mode.", times.user + times.system)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    is_unlimited = files == resource.RLIM_INFINITY
    yield GaugeMetricFamily("process_max_fds", "Maximum number of open files.", math.inf if is_unlimited else files)
    if found.open_files is not None:
        yield GaugeMetricFamily("process_open_fds", "Open files, including connections.", found.open_files)
    try:
        stat = _STAT.read_text(encoding="ascii", errors="replace")
    except OSError:  # not Linux
        return
    # the name, in brackets, may hold anything
    parts = stat.rpartition(")")[2].split()
    yield GaugeMetricFamily("process_virtual_memory_bytes", "Address space in use.", int(parts[_VIRTUAL_BYTES]))
    resident = int(parts[_RESIDENT_PAGES]) * resource.getpagesize()
    yield GaugeMetricFamily("process_resident_memory_bytes", "Memory in use.", resident)
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    started = booted + int(parts[_START_TICKS]) / os.sysconf("SC_CLK_TCK")
    yield GaugeMetricFamily("process_start_time_seconds", "Start time, in seconds since 1970.", round(started, 1))
