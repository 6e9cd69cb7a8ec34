"""The tutorial docs/tutorials/replace-apache.md, with three of Apache's NameServers and a real broker."""

import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.interop.peers.apache import ApacheNameServer
from tests.interop.peers.broker import Broker
from tests.interop.peers.route import topics_of
from tests.interop.peers.waiting import until
from tests.support.daemon import Daemon
from tests.support.tutorial import Reader

# The broker of this test registers every 10 s, operators' brokers every 30 s.
WAIT_SECONDS: Final = "15"


def test_one_of_three_is_replaced(tmp_path: Path, stack: ExitStack) -> None:
    """Two servers serve while the third one is replaced; then all three agree."""
    servers = [stack.enter_context(ApacheNameServer(tmp_path / f"apache-{number}")) for number in range(3)]
    addresses = [server.booted().address for server in servers]
    stack.enter_context(Broker(tmp_path / "broker", addresses)).booted()
    until(lambda: all("BenchmarkTest" in topics_of(address) for address in addresses))
    first = servers[0]
    places = {
        "$HOME/namesrv/kvConfig.json": str(first.home / "kvConfig.json"),
        "/etc/rocketmq/namesrv.properties": str(first.home / "namesrv.properties"),
        "/var/lib/namesrv": str(tmp_path / "ours"),
    }
    names = {f"ns{number}:9876": address for number, address in enumerate(addresses, start=1)}
    reader = Reader(tmp_path, "docs/tutorials/replace-apache.md", {**names, **places})

    reader.sees("before")
    reader.sees("check")
    first.stop()
    reader.sees("stopped", code=1)
    reader.does("prepare")
    program, *flags = shlex.split(reader.text("start"))
    assert program == "namesrv"
    # The test appends flags, of which the last one counts: the port, and a wait as short as this broker's interval.
    flags += ["--listen-port", str(first.port), "--wait-for-service-seconds", WAIT_SECONDS]
    ours = stack.enter_context(Daemon(tmp_path / "ours", *flags)).listening()
    reader.sees("waiting", code=1)
    ours.wait_for("ready")
    reader.sees("agree")
    reader.sees("after")
    reader.sees("explain")
