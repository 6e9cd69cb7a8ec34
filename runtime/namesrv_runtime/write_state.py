"""State of writing a file: whether the last write failed, or the write under way is stuck."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# A write that takes longer counts as stuck; a disk that is only slow takes less.
STUCK_SECONDS: Final = 5.0
# A failure is reported for so long. A writer that writes often has failed again by then; the state of a file that is
# written rarely is unknown after that time.
FAILURE_COUNTS_SECONDS: Final = 60.0


class WriteState:
    """The write state of one file. One thread at a time writes the file and its state; any thread may read it."""

    def __init__(self) -> None:
        # monotonic seconds: when the write under way began
        self._began: float | None = None
        # time and error of the last failure; a successful write clears both
        self._failed: tuple[float, OSError] | None = None

    def __repr__(self) -> str:
        return f"<WriteState [{self.problem() or 'fine'}]>"

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Note how the block ends, and how long it takes."""
        self._began = time.monotonic()
        try:
            yield
        except OSError as error:
            # A copy of the error, because the original would keep its stack frames and all objects in them.
            self._failed = time.monotonic(), OSError(error.errno, error.strerror)
            raise
        else:
            self._failed = None
        finally:
            self._began = None

    @property
    def has_failed(self) -> bool:
        """True if the last write failed."""
        return self._failed is not None

    def stuck_seconds(self) -> float:
        """For how long the write under way has been stuck; 0 when no write is stuck."""
        began = self._began
        seconds = 0.0 if began is None else time.monotonic() - began
        return seconds if seconds > STUCK_SECONDS else 0.0

    def problem(self) -> str | None:
        """The problem in words; None when writing works."""
        if seconds := self.stuck_seconds():
            return f"a write has been stuck for {seconds:.0f} s"
        failed = self._failed
        if failed is not None and time.monotonic() - failed[0] < FAILURE_COUNTS_SECONDS:
            return str(failed[1].strerror).lower()
        return None
