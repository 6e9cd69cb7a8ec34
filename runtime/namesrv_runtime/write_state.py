"""How writing a file goes: whether its last write failed, or one is stuck."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# A write that takes longer is stuck: disks that are only slow take less.
STUCK_SECONDS: Final = 5.0
# A failure counts for that long: who writes often has failed again by then, and of who does not nobody knows.
FAILURE_COUNTS_SECONDS: Final = 60.0


class WriteState:
    """Of one file; written by whichever thread writes the file, one at a time, and read by any."""

    def __init__(self) -> None:
        # monotonic seconds: when the write under way began
        self._began: float | None = None
        # the last failure, and when it was; a success forgets it
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
            # without its frames, and all that they hold
            self._failed = time.monotonic(), OSError(error.errno, error.strerror)
            raise
        else:
            self._failed = None
        finally:
            self._began = None

    def stuck_seconds(self) -> float:
        """For how long a write has been stuck; 0 when none is."""
        began = self._began
        seconds = 0.0 if began is None else time.monotonic() - began
        return seconds if seconds > STUCK_SECONDS else 0.0

    def problem(self) -> str | None:
        """What is wrong; None when nothing is."""
        if seconds := self.stuck_seconds():
            return f"a write has been stuck for {seconds:.0f} s"
        failed = self._failed
        if failed is not None and time.monotonic() - failed[0] < FAILURE_COUNTS_SECONDS:
            return str(failed[1].strerror).lower()
        return None
