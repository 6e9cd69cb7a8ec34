"""Standard output of the command, which may be closed or on a full disk while the report is written."""

import os
import sys

from namesrv_spark_jobs import errors


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
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 # as long as the process


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
