"""Health and metrics over HTTP, from a server's start to its end."""

import signal
import socket
from pathlib import Path

from tests.support.daemon import Daemon, LoopName, Start
from tests.support.http_peer import ask
from tests.support.peer import Broker, Connect

HTTP = ("--http-listen", "127.0.0.1:0")


def test_not_ready_while_it_drains(start: Start, connect: Connect) -> None:
    """From the signal on `/readyz` fails, and `/livez` answers until the server has ended."""
    daemon = start(*HTTP, "--drain-seconds", "600")
    address = daemon.http_address
    # The server drains connections only: two of them, since the first is closed at once.
    for _ in range(2):
        assert connect(daemon).ask(106).code == 0

    daemon.send_signal(signal.SIGTERM)
    daemon.wait_for("draining")

    answer = ask(address, "/readyz")
    assert (answer.status, answer.text) == (503, "[-] staying: draining\nfailed\n")
    assert ask(address, "/livez").status == 200
    daemon.kill()


def test_port_in_use(data_dir: Path, loop: LoopName) -> None:
    """The server does not start without its HTTP port; one line names the flag to change."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Daemon(data_dir, "--http-listen", f"127.0.0.1:{port}", loop=loop) as daemon:
            assert daemon.wait() == 1

    (line,) = daemon.log
    assert line["event"] == "start_failed"
    assert line["error"].startswith(
        f"cannot listen on 127.0.0.1:{port}: address already in use "
        "(--http-listen and --name-servers-listen take another ADDRESS:PORT"
    )


def test_installed_without_the_extra(data_dir: Path, loop: LoopName, connect: Connect) -> None:
    """The server serves without the HTTP port, and one warning names the package to install."""
    missing = ("prometheus_client", "starlette", "uvicorn", "xxhash")
    with Daemon(data_dir, *HTTP, loop=loop, missing_packages=missing) as daemon:
        Broker().register(connect(daemon.listening()))
        assert connect(daemon).ask(105, {"topic": "orders"}).code == 0

        (line,) = daemon.lines("http_is_off")
        assert line["level"] == "warning"
        assert [name for name in missing if name != "xxhash"] == line["missing"]
        assert line["install"] == "pip install -r namesrv.txt of make dist"
        assert daemon.wait_for("listening")["http"] == []
