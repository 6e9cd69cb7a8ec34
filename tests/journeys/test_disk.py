"""A disk that is full, read-only, broken or stuck: the server continues to serve, and loses no confirmed change.

`NAMESRV_KILLS=100` (`make durability`) kills more servers.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from tests.support.daemon import Daemon
from tests.support.disk_faults import FaultyDisk, why_not
from tests.support.heartbeat_files import of, read_log
from tests.support.http_peer import Scrape, ask
from tests.support.peer import Broker, Peer, until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]

PUT, ROUTE, WIPE, LIST = 100, 105, 205, 219
FIRST, SECOND = Broker(), Broker(name="broker-b", addr="10.0.0.2:10911")
# The log event for each file that the server cannot write.
FILES = {
    "snapshot": "snapshot_not_written",
    "kv": "kv_write_failed",
    "heartbeat_log": "heartbeat_log_not_written",
    "audit": "audit_log_not_written",
}
FAULTS = {
    "full": "no space left on device",
    "read_only": "read-only file system",
    "error": "input/output error",
    "slow": "a write has been stuck for ",
}


@pytest.fixture
def disk(data_dir: Path, tmp_path: Path) -> FaultyDisk:
    """The disk of the data directory."""
    return FaultyDisk(data_dir, tmp_path)


@contextmanager
def serving(disk: FaultyDisk, data_dir: Path) -> Iterator[tuple[Daemon, Peer]]:
    """A server, and a connection to it."""
    with Daemon(data_dir, "--http-listen=127.0.0.1:0", environ=disk.environ) as daemon, Peer(daemon.address) as peer:
        yield daemon, peer


def put(value: str, key: str = "k") -> dict[str, str]:
    """The fields of a change."""
    return {"namespace": "NS", "key": key, "value": value}


def values(peer: Peer) -> dict[str, str]:
    """The values of the namespace."""
    answer = peer.ask(LIST, {"namespace": "NS"})
    table: dict[str, str] = json.loads(answer.body)["table"] if answer.code == 0 else {}
    return table


def is_written(place: Path) -> bool:
    """True if the second broker is in the file, or in a file of the folder."""
    files = [place] if place.is_file() else place.rglob("*.open")
    return any(b"broker-b" in file.read_bytes() for file in files)


def disk_problem(daemon: Daemon) -> str:
    """The disk's problem in `/readyz?verbose`, empty without one; it never makes the server unready."""
    page = ask(daemon.http_address, "/readyz?verbose")
    assert page.status == 200
    return next((line for line in page.text.splitlines() if line.startswith("[!] disk_failing: ")), "")


def failing(daemon: Daemon) -> dict[str, float]:
    """The failing files in the metrics."""
    scrape = Scrape(ask(daemon.http_address, "/metrics").text)
    return {file: scrape("nameserver_disk_failing", file=file) for file in FILES}


@pytest.mark.parametrize("fault", FAULTS)
def test_serving_goes_on_without_a_disk(disk: FaultyDisk, data_dir: Path, fault: str) -> None:
    """The server serves without a working disk; once the disk works again, all files are written without a restart."""
    with serving(disk, data_dir) as (daemon, peer):
        FIRST.register(peer)
        assert peer.ask(PUT, put("before")).code == 0
        assert disk_problem(daemon) == ""

        disk.turn(fault)
        with Peer(daemon.address) as other:
            SECOND.register(other)
            # The audit trail may have written its line of the first change already, and needs another one.
            assert other.ask(WIPE, {"brokerName": SECOND.name}).code == 0
            if fault == "slow":
                peer.send(PUT, put("meanwhile"))
            else:
                assert peer.ask(PUT, put("meanwhile")).code == 1
            for file, event in FILES.items():
                found = daemon.wait_for("write_stuck", file=file) if fault == "slow" else daemon.wait_for(event)
                assert found["level"] == "error"
            until(lambda: all(f"{file}: {FAULTS[fault]}" in disk_problem(daemon) for file in FILES))
            until(lambda: dict.fromkeys(FILES, 1.0) == failing(daemon))
            assert other.ask(ROUTE, {"topic": "orders"}).code == 0
            assert values(other)["k"] == "before"

            disk.turn("ok")
            answer = peer.receive() if fault == "slow" else peer.ask(PUT, put("meanwhile"))
            assert answer.code == 0
            until(lambda: all(is_written(data_dir / folder) for folder in ("heartbeats", "audit", "snapshot.json")))
            until(lambda: disk_problem(daemon) == "")
            until(lambda: dict.fromkeys(FILES, 0.0) == failing(daemon))
            daemon.kill()

    for folder, others in (("heartbeats", "/"), ("audit", "-registrations-"), ("audit", "ns-")):
        lines = read_log(data_dir / folder, without=others)
        assert [line["seq"] for line in lines] == [*range(1, len(lines) + 1)]
        assert of(lines, "dropped") == []
    with serving(disk, data_dir) as (daemon, peer):
        assert values(peer)["k"] == "meanwhile"
        assert "2 of 2 expected brokers" in daemon.wait_for("waiting")["reason"]


def test_start_on_a_stuck_disk_is_logged(disk: FaultyDisk, data_dir: Path) -> None:
    """A start that waits for its disk names the directory, and goes on once the disk works."""
    disk.turn("slow")
    with Daemon(data_dir, environ=disk.environ) as daemon:
        found = daemon.wait_for("start_stuck")
        assert (found["level"], found["data_dir"], found["seconds"]) == ("error", str(data_dir), 5)
        assert daemon.lines("listening") == []

        disk.turn("ok")
        daemon.listening()


def test_a_killed_server_has_what_it_confirmed(disk: FaultyDisk, data_dir: Path) -> None:
    """A server that is killed between two responses, on a disk that fails now and then, keeps all confirmed values."""
    rng, confirmed = Random(1), set[str]()
    for life in range(int(os.environ.get("NAMESRV_KILLS", "3"))):
        disk.turn("ok")
        with serving(disk, data_dir) as (daemon, peer):
            assert confirmed <= values(peer).keys()
            # Requests are answered one after the other.
            asked = [f"{life}.{number}" for number in range(60)]
            for key in asked:
                peer.send(PUT, put("v", key))
            codes = []
            for _ in range(rng.randrange(10, 50)):
                codes.append(peer.receive().code)
                if not rng.randrange(10):
                    disk.turn(rng.choice(["ok", "full", "read_only", "error"]))
            daemon.kill()
            with suppress(EOFError):
                while True:
                    # A confirmation that was sent before the kill and is read only now.
                    codes.append(peer.receive().code)
            assert 0 in codes
            confirmed |= {key for key, code in zip(asked, codes, strict=False) if code == 0}
    disk.turn("ok")
    with serving(disk, data_dir) as (_, peer):
        lost = confirmed - values(peer).keys()
    figures = {"kills": life + 1, "confirmed": len(confirmed), "lost": len(lost)}
    # The last line of `make durability`.
    sys.stdout.write(f"\n{json.dumps(figures)}\n")
    assert not lost
