"""A port for a server that stops and starts again."""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_port() -> Iterator[int]:
    """A free port of 127.0.0.1. On Linux no other process gets it until the block ends, even while its server is down.

    Otherwise the port of a stopped server may be given to another one, to which the brokers and clients of the first
    connect. Linux lets a server listen on a port that another socket has bound before, as long as only one listens.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
        if sys.platform != "linux":
            holder.close()
        yield port
