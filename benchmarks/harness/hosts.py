"""Hosts that are network namespaces: sockets of a host, and packets that their switch drops."""

import shutil
import socket
import subprocess
from typing import Final

from benchmarks.harness.figures import BenchError
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
    """Let the switch drop the packets that one of these rules of nft matches, in place of earlier rules.

    Raises:
        BenchError: nft is missing, or refuses the rules.
    """
    if shutil.which("nft") is None:
        raise BenchError("no nft on PATH (package nftables), which drops packets")
    lines = "\n".join(f"{rule} drop" for rule in rules)
    table = f"table bridge lossy {{\nchain forward {{\ntype filter hook forward priority 0;\n{lines}\n}}\n}}\n"
    flushed = "table bridge lossy\ndelete table bridge lossy\n"
    run("ip", "netns", "exec", f"{network.prefix}-switch", "nft", "-f", "-", stdin=flushed + table)


def run(*command: str, stdin: str = "") -> None:
    """Run a program that changes hosts. Raises BenchError with its message if it fails."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=_COMMAND_SECONDS)
    if done.returncode:
        raise BenchError(f"{' '.join(command)}: {done.stderr.strip()}")
