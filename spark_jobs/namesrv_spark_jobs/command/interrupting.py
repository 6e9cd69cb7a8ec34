"""What do Ctrl-C and SIGTERM do? They end the run in good order, once."""

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interruptible() -> Iterator[None]:
    """Both signals raise KeyboardInterrupt inside; afterwards they do what they did before."""
    if threading.current_thread() is not threading.main_thread():
        # a notebook's server handles signals itself
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    listen()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        for number, handler in before.items():
            signal.signal(number, handler)


def listen() -> None:
    """Take the signals (again: pyspark takes the first for itself when a session begins)."""
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            signal.signal(number, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    # an impatient second one must not stop the tidying up
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    # the library under pyspark would tell the whole world how it was interrupted
    logging.disable(logging.CRITICAL)
    raise KeyboardInterrupt
