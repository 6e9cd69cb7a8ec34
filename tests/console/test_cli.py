"""The command `namesrv-console`, as a process."""

import signal
import sys

import httpx2
import pytest

from namesrv_console.cli import main
from tests.support.ctl import refusing_address
from tests.support.fake_clock import GUARD_SECONDS
from tests.support.printing_process import PatternProcess

COMMAND = (sys.executable, "-m", "namesrv_console", "--listen", "127.0.0.1:0")


@pytest.mark.parametrize("ended_by", [signal.SIGTERM, signal.SIGINT])
def test_it_prints_its_url_serves_and_ends(ended_by: signal.Signals) -> None:
    """The command prints one URL, and reports that no server can be reached; either signal ends it with code 0."""
    with refusing_address() as address, PatternProcess([*COMMAND, "--server", address]) as console:
        line = console.wait_for("asking again")
        url = console.wait_for(r"^namesrv-console: http://127\.0\.0\.1:\d+/$").removeprefix("namesrv-console: ")
        page = httpx2.get(url, timeout=GUARD_SECONDS).text
        console.send_signal(ended_by)
        assert console.wait() == 0

    assert address in page
    assert "unreachable" in page
    # The reason may be a message of the operating system.
    assert line.startswith(f"namesrv-console: no connection to {address}: ")
    assert line.endswith("; asking again every second")
    assert line.count(address) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--server", "ns1:x"), "address 'ns1:x' is not host:port"),
        (("--listen", "9878"), "address '9878' is not host:port"),
        (
            ("--listen=192.0.2.1:9878", "--trusted-proxy=10.0.0.0/8", "--public-url=http://x"),
            "cannot listen on 192.0.2.1:9878: ",
        ),
        (("--tls-ca-file", "ca.pem"), "tls_ca_file is set, but tls is not"),
    ],
)
def test_wrong_usage_is_an_error(arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The error is one line with the value, and the console does not start."""
    assert main(arguments) == 2
    assert says in capsys.readouterr().err
