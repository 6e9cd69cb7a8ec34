"""Entry point of `namesrv-staleness`: exit codes, signals and error messages."""

import importlib.util
import logging
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

from namesrv_spark_jobs import errors
from namesrv_spark_jobs.command import compact, standard_output
from namesrv_spark_jobs.command.arguments import Settings, read_settings
from namesrv_spark_jobs.errors import PROGRAM, MissingPackageError, UsageError

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit code."""
    standard_output.reserve()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # a character that the terminal cannot show becomes an escape
            stream.reconfigure(errors="backslashreplace")
    try:
        with _interruptible():
            return _run(sys.argv[1:] if argv is None else argv)
    except UsageError as error:
        sys.stderr.write(f"{PROGRAM}: {error}\n")
        return errors.USAGE
    except errors.EngineError as error:
        if "--debug" in (sys.argv if argv is None else argv):
            traceback.print_exc()
        else:
            sys.stderr.write(f"{PROGRAM}: {error}; --debug shows the whole trace\n")
        return errors.BUG
    except KeyboardInterrupt:
        # a compaction keeps the files that it has converted
        is_compaction = (sys.argv[1:] if argv is None else argv)[:1] == [compact.COMMAND]
        sys.stderr.write(f"{PROGRAM}: interrupted{'' if is_compaction else '; nothing was written'}\n")
        # With `python -m`, Python ends by SIGINT and not with our exit code if the interruption arrived in `exec` of a
        # text, which dataclasses use. The next `exec` of a text resets that.
        exec("")  # noqa: S102 - an empty text
        return errors.INTERRUPTED
    except Exception:  # noqa: BLE001 - the outermost boundary, which prints the traceback
        traceback.print_exc()
        return errors.BUG


def _run(argv: Sequence[str]) -> int:
    if list(argv[:1]) == ["compare"]:
        return _compare(argv[1:])
    if list(argv[:1]) == [compact.COMMAND]:
        return compact.main(argv[1:])
    settings = read_settings(argv)
    if settings.submit_line is not None:
        return standard_output.written(f"{settings.submit_line}\n")
    return _report(settings, argv)


def _report(settings: Settings, argv: Sequence[str]) -> int:
    _require_packages()
    from namesrv_spark_jobs.command.run import make_report  # noqa: PLC0415  # not for --help, nor for a mistyped option

    return make_report(settings, argv)


def _compare(argv: Sequence[str]) -> int:
    _require_packages()
    from namesrv_spark_jobs.command.compare import compare  # noqa: PLC0415  # not for a report

    return compare(argv, lambda settings: _report(settings, argv))


def _require_packages() -> None:
    for module, package in (("jinja2", "jinja2"), ("vl_convert", "vl-convert-python")):
        if importlib.util.find_spec(module) is None:
            raise MissingPackageError(package)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Context in which SIGINT and SIGTERM raise KeyboardInterrupt; the earlier handlers are restored at its end."""
    if threading.current_thread() is not threading.main_thread():
        # only the main thread may set handlers; the server of a notebook handles signals itself
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    try:
        yield
    except Exception as error:
        if _is_interruption(error):
            raise KeyboardInterrupt from error
        raise
    finally:
        logging.disable(logging.NOTSET)
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_interruption(error: BaseException | None) -> bool:
    """True if an interruption caused the error: pyspark's clean-up calls Java, and fails after an interrupted call."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    # a second signal must not interrupt the clean-up
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    # py4j would log the interruption as an error
    logging.disable(logging.CRITICAL)
    raise KeyboardInterrupt
