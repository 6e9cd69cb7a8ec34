"""Standard output and error of the command, which may be closed or on a full disk while the report is written."""

import io
import os
import sys
from typing import Any

from namesrv_spark_jobs import errors


class _Lossy(io.FileIO):
    """Standard error: text that cannot be written is lost, and the report is written all the same."""

    def write(self, data: Any, /) -> int:
        """Write to the descriptor, or drop the text."""
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def reserve() -> None:
    """Open /dev/null for standard streams that are closed, so that no file of the report gets their numbers."""
    # Standard output is opened for reading, so that writing to it is an error.
    for descriptor, flags in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            # os.open takes the lowest free number, which is `descriptor`
            os.open(os.devnull, flags)
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 # as long as the process
    if sys.stderr is sys.__stderr__:
        encoding = sys.stderr.encoding if sys.stderr else "utf-8"
        raw = io.BufferedWriter(_Lossy(2, "w", closefd=False))
        sys.stderr = io.TextIOWrapper(raw, encoding, line_buffering=True)


def written(text: str) -> int:
    """Write a text, and return the exit code; a failure is one line on standard error."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # Python would write the buffered text again at exit, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            # The reader, such as `head`, has closed the pipe.
            return errors.OK
        sys.stderr.write(f"{errors.PROGRAM}: standard output: {str(error.strerror).lower()}\n")
        return errors.OUTPUT
    return errors.OK
