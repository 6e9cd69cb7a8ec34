"""Where does `namesrv-staleness` start, and with which code does it end?"""

import os
import sys
import traceback
from collections.abc import Sequence

from namesrv_spark_jobs.command import exit_codes
from namesrv_spark_jobs.command.interrupting import interruptible
from namesrv_spark_jobs.command.settings import read_settings
from namesrv_spark_jobs.errors import UsageError
from namesrv_spark_jobs.reports import PROGRAM


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the arguments say; the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # a terminal that cannot show a character shows its number
            stream.reconfigure(errors="backslashreplace")
    try:
        with interruptible():
            return _run(sys.argv[1:] if argv is None else argv)
    except UsageError as error:
        sys.stderr.write(f"{PROGRAM}: {error}\n")
        return exit_codes.USAGE
    except KeyboardInterrupt:
        sys.stderr.write(f"{PROGRAM}: interrupted; nothing was written\n")
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        # who read our output has left; the report is there
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.OK
    except Exception:  # noqa: BLE001 - the outermost boundary; nothing is hidden
        traceback.print_exc()
        return exit_codes.BUG


def _run(argv: Sequence[str]) -> int:
    settings = read_settings(argv)
    if settings.submit_line is not None:
        sys.stdout.write(f"{settings.submit_line}\n")
        return exit_codes.OK
    # numpy and pyspark's types take a second: not for --help, nor for a mistyped option
    from namesrv_spark_jobs.command.preconditions import require_pyspark  # noqa: PLC0415

    require_pyspark()
    from namesrv_spark_jobs.command.run import make_report  # noqa: PLC0415  # imports pyspark

    return make_report(settings, argv)
