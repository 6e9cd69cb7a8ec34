"""Programs that change hosts, which are network namespaces; `nft` drops packets of their switch."""

import shutil
import subprocess
from typing import Final

from benchmarks.harness.figures import BenchError
from tests.netns.network import Network

_COMMAND_SECONDS: Final = 60


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
