"""A port for a server that stops and starts again."""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_port(host: str = "127.0.0.1") -> Iterator[int]:
    """A free port; on Linux no other process is given it until the block ends, even while its server is stopped.

    Otherwise the port of a stopped server may be given to another one, to which the brokers and clients of the first
    connect. Linux lets a server listen on a port that another socket has bound before, as long as only one listens.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((host, 0))
        port = holder.getsockname()[1]
        if sys.platform != "linux":
            holder.close()
        yield port
