"""A server starts, or ends with one line that has the reason."""

import os
import resource
import socket
from pathlib import Path

import pytest

from tests.support.daemon import Daemon, LoopName, Start
from tests.support.peer import Connect

# The limit and the lock of the data directory do not depend on the event loop.
ANY_LOOP = pytest.mark.parametrize("loop", ["auto"])


def refusal(data_dir: Path, *flags: str, loop: LoopName) -> str:
    """The reason why a server did not start: the error in its only line of log."""
    with Daemon(data_dir, *flags, loop=loop) as daemon:
        assert daemon.wait() == 1
    assert [line["event"] for line in daemon.log] == ["start_failed"]
    assert daemon.log[0]["level"] == "error"
    return str(daemon.log[0]["error"])


def test_listening_line_has_addresses_and_boot_id(start: Start, data_dir: Path) -> None:
    """The line has the addresses (which share one port), data directory, version and boot id; the server is ready."""
    flags = ("--listen-host", "127.0.0.1,127.0.0.2", "--listen-port", "0")
    daemon = start(*flags, "--data-dir", os.path.relpath(data_dir))

    line = daemon.wait_for("listening")
    port = daemon.address[1]
    assert line["addresses"] == [f"127.0.0.1:{port}", f"127.0.0.2:{port}"]
    with socket.create_connection(("127.0.0.2", port)):
        pass
    assert (line["data_dir"], line["ready"], len(line["boot_id"])) == (str(data_dir), True, 16)
    assert line["version"]
    assert daemon.wait_for("ready")["reason"] == "ready: no brokers expected"
    assert data_dir.stat().st_mode & 0o777 == 0o700


@ANY_LOOP
def test_soft_limit_of_open_files_is_raised(start: Start) -> None:
    """The soft limit, often 1,024, is for programs that use select(): 10,000 connections need no settings."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard), hard))
    try:
        daemon = start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE) == (hard, hard)


def test_unavailable_address_is_an_error(data_dir: Path, loop: LoopName) -> None:
    """A port in use and an address of another machine end the server with code 1 and a line that names the address."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for flags, address, reason in [
            (("--listen-port", port), f"127.0.0.1:{port}", "address already in use"),
            (("--listen-port=0", "--listeners", f"lan={port}"), f"127.0.0.1:{port}", "address already in use"),
            (("--listen-host", "192.0.2.1", "--listen-port=0"), "192.0.2.1:0", "cannot assign requested address"),
        ]:
            assert refusal(data_dir, *flags, loop=loop) == f"cannot listen on {address}: {reason}"


@ANY_LOOP
def test_unusable_data_directory_is_an_error(start: Start, data_dir: Path, loop: LoopName, connect: Connect) -> None:
    """The directory of a running server, which goes on, and a file are refused."""
    first = start()
    assert refusal(data_dir, loop=loop) == f"data directory {data_dir} is in use by another namesrv"
    assert connect(first).ask(106).code == 0

    file = data_dir / "file"
    file.touch()
    assert refusal(file, loop=loop) == f"data directory {file}: Not a directory"
