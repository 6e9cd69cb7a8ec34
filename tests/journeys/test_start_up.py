"""A server starts where it can, and says in one line why where it cannot."""

import os
import resource
import socket
from pathlib import Path

import pytest

from tests.support.daemon import Daemon, LoopName, Start
from tests.support.ipv6 import can_use_ipv6
from tests.support.peer import Broker, Connect


def refusal(data_dir: Path, *flags: str, loop: LoopName) -> str:
    """Why a server did not start: the error of the only line that it wrote."""
    with Daemon(data_dir, *flags, loop=loop) as daemon:
        assert daemon.wait() == 1
    assert [line["event"] for line in daemon.log] == ["start_failed"]
    assert daemon.log[0]["level"] == "error"
    return str(daemon.log[0]["error"])


def test_listening_line_says_where_and_what(start: Start, data_dir: Path) -> None:
    """Addresses (which share one port), absolute data directory, version, boot id; and that it is ready at once."""
    daemon = start("--listen-host", "127.0.0.1,127.0.0.2", "--data-dir", os.path.relpath(data_dir))

    line = daemon.wait_for("listening")
    port = daemon.address[1]
    assert [f"127.0.0.1:{port}", f"127.0.0.2:{port}"] == line["addresses"]
    with socket.create_connection(("127.0.0.2", port)):
        pass
    assert (line["data_dir"], line["ready"], len(line["boot_id"])) == (str(data_dir), True, 16)
    assert line["version"]
    assert daemon.wait_for("ready")["reason"] == "ready: no brokers expected"
    assert data_dir.stat().st_mode & 0o777 == 0o700


def test_as_many_files_may_be_open_as_the_system_lets_it(start: Start) -> None:
    """The soft limit, often 1,024, is for programs that use select(): 10,000 connections need no settings."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard), hard))
    try:
        daemon = start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert (hard, hard) == resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)


@pytest.mark.skipif(not can_use_ipv6(), reason="no IPv6 loopback here")
def test_ipv6(start: Start, connect: Connect) -> None:
    """On ::1 it serves, and writes addresses in brackets."""
    daemon = start("--listen-host", "::1", "--log-level", "debug")
    peer = connect(daemon)

    assert [f"[::1]:{daemon.address[1]}"] == daemon.wait_for("listening")["addresses"]
    daemon.wait_for("connection_opened", peer=peer.address)
    Broker().register(peer)
    assert peer.ask(105, {"topic": "orders"}).code == 0


def test_address_that_it_cannot_have(data_dir: Path, loop: LoopName) -> None:
    """One that somebody listens on, and one of another machine: code 1 and a line that names it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for flags, address, reason in [
            (("--listen-port", port), f"127.0.0.1:{port}", "address already in use"),
            (("--listen-host", "192.0.2.1"), "192.0.2.1:0", "cannot assign requested address"),
        ]:
            error = refusal(data_dir, *flags, loop=loop)
            assert error.startswith(f"cannot listen on {address}: ")
            assert error.endswith(reason)


def test_data_directory_that_it_cannot_have(start: Start, data_dir: Path, loop: LoopName, connect: Connect) -> None:
    """One of another server, which serves on, one below a file, one with a KV file that cannot be read.

    To go on without that would be to forget what is in it. A server that was killed leaves no lock behind.
    """
    first = start()
    assert f"data directory {data_dir} is in use by another namesrv" == refusal(data_dir, loop=loop)
    assert connect(first).ask(106).code == 0
    first.kill()
    assert start().stop() == 0

    (data_dir / "file").touch()
    below = data_dir / "file" / "data"
    assert f"data directory {below}: Not a directory" == refusal(below, loop=loop)
    (data_dir / "kvConfig.json").mkdir()
    assert "Is a directory" in refusal(data_dir, loop=loop)
