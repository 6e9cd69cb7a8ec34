"""The NameServers that are tortured, and the commands that start them."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from benchmarks.harness.rounds import Bench
from benchmarks.peers import rocketmq
from benchmarks.peers.fetching import jars
from benchmarks.peers.peers import rust_program

PORT: Final = 9876
_HEAP: Final = "512 MB"


# RocketMQ's defaults (120 s, 30 s, 5 s) divided by 12: the expiry of brokers, the time from one registration of a
# broker to the next, and the time between two scans for silent brokers
EXPIRY_SECONDS: Final = 10.0
REGISTRATION_SECONDS: Final = 2.5
_SCAN_SECONDS: Final = 0.5
# longest time for which a restarted server of ours waits for missing brokers, a twelfth of the default
_READINESS_SECONDS: Final = 45 / 12

# home directory and address of a server -> the command that starts the server
ServerCommand = Callable[[Path, str], list[str]]


def _ours(bench: Bench) -> ServerCommand:
    bench.progress("ours needs nothing")

    def command(home: Path, address: str) -> list[str]:
        return [
            *(sys.executable, "-m", "namesrv", "--listen-host", address, "--listen-port", str(PORT)),
            *("--http-listen", "", "--data-dir", str(home / "data"), "--log-format", "json"),
            *("--scan-interval-seconds", str(_SCAN_SECONDS), "--wait-for-service-seconds", str(_READINESS_SECONDS)),
        ]

    return command


def _apache(bench: Bench) -> ServerCommand:
    lib = jars(bench, "apache", rocketmq.APACHE_VERSIONS[-1])

    def command(home: Path, address: str) -> list[str]:
        scan_ms = round(_SCAN_SECONDS * 1000)
        place = {"bindAddress": address, "listenPort": PORT}
        return rocketmq.apache_command(lib, _HEAP, home, **place, scanNotActiveBrokerInterval=scan_ms)

    return command


def _rust(bench: Bench) -> ServerCommand:
    program = rust_program(bench)

    def command(home: Path, address: str) -> list[str]:
        settings = home / "namesrv.toml"
        # Without TLS rocketmq-rust listens on loopback addresses only, unless the second line allows other addresses.
        settings.write_text(
            f"scanNotActiveBrokerInterval = {_SCAN_SECONDS * 1000:.0f}\nallowInsecurePublicListener = true\n"
            f'rocketmqHome = "{home}"\nkvConfigPath = "{home}/kv.json"\nconfigStorePath = "{home}/store.properties"\n',
            encoding="utf-8",
        )
        place = ("--listenPort", str(PORT), "--bindAddress", address)
        return [str(program), "--configFile", str(settings), *place]

    return command


# name of a server -> its label, and a function that fetches the program and returns its command. Raises AbsentError.
PEERS: Final[Mapping[str, tuple[str, Callable[[Bench], ServerCommand]]]] = {
    "ours": ("ours", _ours),
    "apache": (f"Apache's {rocketmq.APACHE_VERSIONS[-1]}", _apache),
    "rust": (f"rocketmq-rust {rocketmq.RUST_VERSION}", _rust),
}
