"""Repeats an action in the background while load runs."""

import threading
import time
from collections.abc import Callable
from typing import Self

from benchmarks.figures import BenchError


class Repeating:
    """Work in a thread of its own until the block ends, at most so often a second; what is in hand is finished.

    Leaving the block raises BenchError when some work failed with it: then there was no more.
    """

    def __init__(self, work: Callable[[], object], *, at_most: float | None = None) -> None:
        self._work = work
        self._between = 0.0 if at_most is None else 1 / at_most
        self._stopped = threading.Event()
        self._error: BenchError | None = None
        self._thread = threading.Thread(target=self._run)
        # how often it really was done, once the block has ended
        self.per_second = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        if self._error is not None and kind is None:
            raise self._error

    def _run(self) -> None:
        began = time.monotonic()
        done = 0
        try:
            while not self._stopped.wait(max(0.0, began + done * self._between - time.monotonic())):
                self._work()
                done += 1
        except BenchError as error:
            self._error = error
        self.per_second = done / (time.monotonic() - began)
