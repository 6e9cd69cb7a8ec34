"""Hosts that are network namespaces: sockets of a host, and packets that their switch drops."""

import socket
import subprocess
from typing import Final

from tests.netns.network import Host, Network, inside

_COMMAND_SECONDS: Final = 60


def new_socket(host: Host, source: str) -> socket.socket:
    """A non-blocking TCP socket on a host, bound to one of its addresses."""
    with inside(host):
        made = socket.socket()
    made.setblocking(False)  # noqa: FBT003 - positional only
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.bind((source, 0))
    return made


def drop(network: Network, *rules: str) -> None:
    """Let the switch drop the packets that one of these rules of nft matches, in place of earlier rules."""
    lines = "\n".join(f"{rule} drop" for rule in rules)
    table = f"table bridge lossy {{\nchain forward {{\ntype filter hook forward priority 0;\n{lines}\n}}\n}}\n"
    flushed = "table bridge lossy\ndelete table bridge lossy\n"
    command = ["ip", "netns", "exec", f"{network.prefix}-switch", "nft", "-f", "-"]
    subprocess.run(command, input=flushed + table, text=True, check=True, timeout=_COMMAND_SECONDS)
