"""Addresses at which connecting fails."""

import contextlib
import socket
import sys
from collections.abc import Iterator

import pytest

from tests.support.scripted_server import HOST


@contextlib.contextmanager
def refusing_port() -> Iterator[socket.socket]:
    """A bound port that refuses connections until a server listens on it."""
    with socket.socket() as bound:
        bound.bind((HOST, 0))
        yield bound


@contextlib.contextmanager
def full_queue() -> Iterator[str]:
    """The address of a server whose accept queue is full: the kernel drops connection attempts."""
    if sys.platform != "linux":
        pytest.skip("other kernels refuse instead of dropping")
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind((HOST, 0))
        listening.listen(0)
        for _ in range(4):
            queued = stack.enter_context(socket.socket())
            queued.settimeout(0)
            queued.connect_ex(listening.getsockname())
        yield f"{HOST}:{listening.getsockname()[1]}"
