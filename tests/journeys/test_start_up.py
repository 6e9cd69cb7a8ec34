"""A server starts where it can, and says in one line why where it cannot."""

import socket
from pathlib import Path

import pytest

from tests.support.broker import Broker
from tests.support.daemon import Daemon, LoopName, Start
from tests.support.ipv6 import can_use_ipv6
from tests.support.peer import Connect


def refusal(data_dir: Path, *flags: str, loop: LoopName) -> str:
    """Why a server did not start: the error of the only line that it wrote."""
    with Daemon(data_dir, *flags, loop=loop) as daemon:
        assert 1 == daemon.wait()
    assert ["start_failed"] == [line["event"] for line in daemon.log]
    assert "error" == daemon.log[0]["level"]
    return str(daemon.log[0]["error"])


def test_listening_line_says_where_and_what(start: Start, data_dir: Path) -> None:
    """The line names address, data directory, version and run, and that routes are answered at once."""
    daemon = start()

    line = daemon.wait_for("listening")
    assert [f"127.0.0.1:{daemon.address[1]}"] == line["addresses"]
    assert str(data_dir) == line["data_dir"]
    assert line["ready"] is True
    assert line["version"]
    assert 16 == len(line["boot_id"])
    assert "ready: no brokers expected" == daemon.wait_for("ready")["reason"]
    assert 0o700 == data_dir.stat().st_mode & 0o777


def test_several_addresses_share_one_port(start: Start, connect: Connect) -> None:
    """Two addresses and port 0 give one free port on both."""
    daemon = start("--listen-host", "127.0.0.1,127.0.0.2")

    port = daemon.address[1]
    assert [f"127.0.0.1:{port}", f"127.0.0.2:{port}"] == daemon.wait_for("listening")["addresses"]
    with socket.create_connection(("127.0.0.2", port)):
        pass


@pytest.mark.skipif(not can_use_ipv6(), reason="no IPv6 loopback here")
def test_ipv6(start: Start, connect: Connect) -> None:
    """On ::1 it serves, and writes addresses in brackets."""
    daemon = start("--listen-host", "::1", "--log-level", "debug")
    peer = connect(daemon)

    assert [f"[::1]:{daemon.address[1]}"] == daemon.wait_for("listening")["addresses"]
    daemon.wait_for("connection_opened", peer=peer.address)
    Broker().register(peer)
    assert 0 == peer.ask(105, {"topic": "orders"}).code


def test_port_in_use(data_dir: Path, loop: LoopName) -> None:
    """A port that somebody listens on ends the start with code 1 and a line that names it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = refusal(data_dir, "--listen-port", str(port), loop=loop)

    assert error.startswith(f"StartError: cannot listen on 127.0.0.1:{port}: ")
    assert error.endswith("address already in use")


def test_address_of_another_machine(data_dir: Path, loop: LoopName) -> None:
    """An address that is not ours ends the start with code 1 and a line that names it."""
    error = refusal(data_dir, "--listen-host", "192.0.2.1", loop=loop)

    assert error.startswith("StartError: cannot listen on 192.0.2.1:0: ")
    assert error.endswith("cannot assign requested address")


def test_data_directory_in_use(start: Start, data_dir: Path, loop: LoopName, connect: Connect) -> None:
    """A second server in one data directory ends with code 1 and a line that names it; the first one serves on."""
    first = start()

    error = refusal(data_dir, loop=loop)

    assert f"StartError: data directory {data_dir} is in use by another namesrv" == error
    assert 0 == connect(first).ask(106).code


def test_data_directory_is_free_after_a_kill(start: Start) -> None:
    """A server that was killed leaves no lock behind."""
    start().kill()

    assert start().is_running


def test_data_directory_that_cannot_be_made(tmp_path: Path, loop: LoopName) -> None:
    """A data directory below a file ends the start with code 1 and a line that names it."""
    (tmp_path / "file").touch()
    data_dir = tmp_path / "file" / "data"

    assert f"StartError: data directory {data_dir}: Not a directory" == refusal(data_dir, loop=loop)


def test_kv_configuration_that_cannot_be_read(data_dir: Path, loop: LoopName) -> None:
    """A KV file that is there and cannot be read ends the start: to go on would be to forget what is in it."""
    (data_dir / "kvConfig.json").mkdir(parents=True)

    assert "Is a directory" in refusal(data_dir, loop=loop)
