"""A separate process that reads logs, so that a long question never delays a live page, and can be ended."""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Final

import msgspec

from namesrv_runtime.program import not_installed
from namesrv_spark_jobs.history.files import LogsError
from namesrv_spark_jobs.history.model import Answer, Failed, Question

# Live pages have priority over the worker.
_NICENESS: Final = 5
# The module of the wheel `namesrv-report`, and the package that the wheel requires; without one of them every answer is
# an error.
_REPORT: Final = frozenset({"duckdb", "namesrv_spark_jobs"})


def main(argv: Sequence[str]) -> None:
    """Answer each line of JSON on standard input with one on standard output: `worker FOLDER-FOR-TABLES LOGS ...`."""
    os.nice(_NICENESS)
    # The answers get their own descriptor, and standard output becomes standard error, since a library may print.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    questions: msgspec.json.Decoder[Question] = msgspec.json.Decoder(Question)
    # The console may have been killed: then the pipe is broken, and only the worker can remove the folder.
    with ExitStack() as kept, suppress(BrokenPipeError):
        kept.callback(shutil.rmtree, argv[0], ignore_errors=True)
        answer = _answering(argv[0], argv[1:], kept)
        for line in sys.stdin.buffer:
            answers.write(msgspec.json.encode(answer(questions.decode(line))) + b"\n")
            answers.flush()


def _answering(folder: str, logs: Sequence[str], kept: ExitStack) -> Callable[[Question], Answer]:
    try:
        import duckdb  # noqa: PLC0415 - only the wheel `namesrv-report` requires duckdb

        from namesrv_spark_jobs.history.readings import Readings  # noqa: PLC0415
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        if package not in _REPORT:
            raise
        missing = Failed(why=not_installed(package, "namesrv-report"))
        return lambda _: missing
    readings = kept.enter_context(Readings(folder, logs))

    def answer(question: Question) -> Answer:
        try:
            return readings.answer(question)
        except LogsError as error:
            return Failed(why=str(error))
        except duckdb.OutOfMemoryException:
            return Failed(why="that takes more memory than there is; choose a shorter time")

    return answer


if __name__ == "__main__":
    main(sys.argv[1:])
