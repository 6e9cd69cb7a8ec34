"""State of writing a file: whether the last write failed, or the write under way is stuck."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# A write that takes longer counts as stuck; a disk that is only slow takes less.
STUCK_SECONDS: Final = 5.0


class WriteState:
    """The write state of one file. One thread at a time writes the file and its state; any thread may read it."""

    def __init__(self) -> None:
        # monotonic seconds: when the write under way began
        self._began: float | None = None
        # error of the last write if that failed; writers repeat a failed write until it succeeds
        self._failed: OSError | None = None

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
            self._failed = OSError(error.errno, error.strerror)
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
        return None if failed is None else str(failed.strerror).lower()
