"""A separate process that reads logs, so that a long request never delays a live page, and can be ended."""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import msgspec

from namesrv_console.past.asking import Answer, Logged, LoggedRequest, Request
from namesrv_runtime.program import not_installed
from namesrv_spark_jobs.history.hours import LogsError, all_hours
from namesrv_spark_jobs.history.model import Failed, ReportRequest

# Live pages have priority over the worker.
_NICENESS: Final = 5
# The module of the wheel `namesrv-report`, and the package that the wheel requires; without one of them every result is
# an error.
_REPORT: Final = frozenset({"duckdb", "namesrv_spark_jobs"})


def main(argv: Sequence[str]) -> None:
    """Read a request from each line of standard input, and write its result as a line of JSON.

    The arguments are the folder for tables, and the logs.
    """
    os.nice(_NICENESS)
    # The results get their own descriptor, and standard output becomes standard error, since a library may print.
    results = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    requests: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
    # The console may have been killed: then the pipe is broken, and only the worker can remove the folder.
    with ExitStack() as kept, suppress(BrokenPipeError):
        kept.callback(shutil.rmtree, argv[0], ignore_errors=True)
        result = _results(argv[0], argv[1:], kept)
        for line in sys.stdin.buffer:
            results.write(msgspec.json.encode(result(requests.decode(line))) + b"\n")
            results.flush()


def _results(folder: str, logs: Sequence[str], kept: ExitStack) -> Callable[[Request], Answer]:
    try:
        import duckdb  # noqa: PLC0415 - only the wheel `namesrv-report` requires duckdb

        from namesrv_spark_jobs.history.reading.readings import Readings  # noqa: PLC0415
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        if package not in _REPORT:
            raise
        absent = Failed(why=not_installed(package, "namesrv-report"))
        return lambda _: absent
    opened = kept.enter_context(ExitStack())
    readings, left_out = opened.enter_context(Readings(folder, logs)), list[str]()

    def result(request: Request) -> Answer:
        nonlocal readings, left_out
        if isinstance(request, LoggedRequest):
            return Logged(hours=all_hours(logs), missing=_missing(logs))
        if (found := _missing(logs)) != left_out:
            # The readings that are kept have other directories.
            opened.close()
            readings, left_out = opened.enter_context(Readings(folder, [it for it in logs if it not in found])), found
        if left_out and isinstance(request, ReportRequest):
            # The report is a file, which does not show what it lacks.
            return Failed(why=f"{left_out[0]}: no such directory")
        try:
            return readings.result(request)
        except LogsError as error:
            return Failed(why=str(error))
        except duckdb.OutOfMemoryException:
            return Failed(why="that takes more memory than there is; choose a shorter time")

    return result


def _missing(logs: Sequence[str]) -> list[str]:
    """The missing directories; none if all are missing, since pages then have nothing else to show.

    Only the worker looks at directories: on a dead network disk a look may last for ever.
    """
    found = [log for log in logs if _is_missing(log)]
    return found if len(found) < len(logs) else []


def _is_missing(log: str) -> bool:
    try:
        return not Path(log).is_dir()
    except OSError:
        # The reading fails with the reason.
        return False


if __name__ == "__main__":
    main(sys.argv[1:])
