"""A process of its own that reads logs, so that a long question never delays a live page, and can be ended."""

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

# live pages go first
_NICENESS: Final = 5
# the wheel `namesrv-report`, and what it requires
_REPORT: Final = frozenset({"duckdb", "namesrv_spark_jobs"})


def main(argv: Sequence[str]) -> None:
    """Answer a line of JSON with another one until there are no more: `worker FOLDER-FOR-TABLES LOGS ...`."""
    os.nice(_NICENESS)
    # nothing that a library prints may stand among answers
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    questions: msgspec.json.Decoder[Question] = msgspec.json.Decoder(Question)
    # the console may have been killed: then nobody reads, and nobody else removes the folder
    with ExitStack() as kept, suppress(BrokenPipeError):
        kept.callback(shutil.rmtree, argv[0], ignore_errors=True)
        answer = _answering(argv[0], argv[1:], kept)
        for line in sys.stdin.buffer:
            answers.write(msgspec.json.encode(answer(questions.decode(line))) + b"\n")
            answers.flush()


def _answering(folder: str, logs: Sequence[str], kept: ExitStack) -> Callable[[Question], Answer]:
    try:
        import duckdb  # noqa: PLC0415 - with the report only

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
