"""A row about a network that loses and delays packets: two hosts (network namespaces), and a proxy with latency.

    python -m benchmarks.scoreboard.lossy HOST:PORT SECONDS

runs on the host of brokers and clients, and prints the results of their pulls.
"""

import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from datetime import datetime
from typing import Final

from benchmarks.harness.build import ROOT
from benchmarks.harness.figures import BenchError, Figure, none_of
from benchmarks.harness.fleet import entered
from benchmarks.harness.rounds import Bench
from benchmarks.harness.servers import daemon
from benchmarks.scoreboard.outages import TOPIC, Seen, agents, client_of, figures, pull
from namesrv_client import RouteClient, RouteError
from namesrv_runtime import loops
from tests.netns.network import Host, Network, why_not
from tests.support.tcp_proxy import TcpProxy

_CLIENTS: Final = 10
_LOSS: Final = 0.1
_LATENCY_SECONDS: Final = (0.1, 0.3)
# a tenth of the default of 30 s, as the expiry of 12 s is of 120 s
_HEARTBEAT_SECONDS: Final = 3.0
_FLAGS: Final = ("--broker-expiry-seconds", "12", "--scan-interval-seconds", "1")
_PATIENCE_SECONDS: Final = 60.0


def packet_loss(seconds: int) -> list[Figure]:
    """Evictions and pulls while a tenth of all packets are lost in each direction, and the others delayed."""
    if (reason := why_not()) is not None:
        raise BenchError(reason)
    with tempfile.TemporaryDirectory(prefix="namesrv-scoreboard-") as root, Network() as network:
        network.add({"server": "10.0.0.1", "apps": "10.0.0.2"})
        place = (
            "--listen-host",
            "10.0.0.1",
            "--listen-port",
            "9876",
            "--http-listen",
            "",
            "--data-dir",
            f"{root}/data",
        )
        prefix = network.hosts["server"].command()
        with daemon(Bench(), *place, *_FLAGS, prefix=prefix) as server:
            for host in network.hosts.values():
                _lose_packets(host)
            program = (sys.executable, "-m", "benchmarks.scoreboard.lossy", "10.0.0.1:9876", str(seconds))
            command = network.hosts["apps"].command(*program)
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=seconds + 300)
            log = server.log()
    if done.returncode:
        raise BenchError(f"brokers and clients ended with {done.returncode}: {done.stderr[-1000:]}")
    report = json.loads(done.stdout.splitlines()[-1])
    # Brokers unregister at the end, which is not an eviction.
    ended = report.pop("until")
    evicted = [
        entry["reason"]
        for entry in log
        if entry["event"] == "broker_evicted" and datetime.fromisoformat(entry["ts"]).timestamp() < ended
    ]
    return [none_of("evicted", "live brokers evicted", len(evicted), " ".join(evicted)), *figures(Seen(**report))]


def _lose_packets(host: Host) -> None:
    rule = f"-A INPUT -i eth0 -m statistic --mode random --probability {_LOSS} -j DROP"
    done = subprocess.run(host.command("iptables", *rule.split()), capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"packets cannot be lost (package iptables): {done.stderr.strip()}")


# -- host of brokers and clients --------------------------------------------------------------------------------------


async def _seen(host: str, port: int, seconds: float) -> dict[str, object]:
    seen, ended = Seen(), asyncio.Event()
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(TcpProxy((host, port), lambda: random.uniform(*_LATENCY_SECONDS)))
        address = proxy.address
        await entered(stack, agents(address, _HEARTBEAT_SECONDS), 1)
        clients = [await stack.enter_async_context(client_of(address)) for _ in range(_CLIENTS)]
        await asyncio.gather(*(_first_route(client) for client in clients))
        async with asyncio.TaskGroup() as tasks:
            for client in clients:
                tasks.create_task(pull(client, seen, ended))
            await asyncio.sleep(seconds)
            ended.set()
        until = time.time()
    return {**asdict(seen), "until": until}


async def _first_route(client: RouteClient) -> None:
    """Pull until a route is cached."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while client.cached(TOPIC) is None and time.monotonic() < deadline:
        try:
            await client.route(TOPIC)
        except RouteError:
            await asyncio.sleep(0.1)


def main(arguments: Sequence[str]) -> None:
    """Run brokers and clients, and print the results of their pulls."""
    address, seconds = arguments
    host, _, port = address.rpartition(":")
    sys.stdout.write(json.dumps(loops.run(lambda: _seen(host, int(port), float(seconds)))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
