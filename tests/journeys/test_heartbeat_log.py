"""The heartbeat log when the process or the disk fails."""

import gzip
import json
from pathlib import Path

import pytest

from tests.support.daemon import Start
from tests.support.peer import Broker, Connect, until

# No test of this file depends on the event loop.
pytestmark = pytest.mark.parametrize("loop", ["auto"])

BROKER = Broker()
ROUTE, ORDERS = 105, {"topic": "orders"}


def wait_for_file(root: Path, suffix: str) -> Path:
    """The first file with this suffix, as soon as it has a line."""
    until(lambda: [path for path in root.rglob(f"*{suffix}") if path.stat().st_size])
    return next(path for path in root.rglob(f"*{suffix}") if path.stat().st_size)


def test_a_killed_server_leaves_whole_lines(start: Start, connect: Connect, data_dir: Path) -> None:
    """At most the last line is incomplete; the next start closes the file without changing its content."""
    daemon = start()
    peer = connect(daemon)
    BROKER.register(peer)
    root = data_dir / "heartbeats"
    left = wait_for_file(root, ".open")
    daemon.kill()
    torn = left.read_bytes() + b'{"v":1,"seq":'
    left.write_bytes(torn)

    start()

    closed = wait_for_file(root, f"{left.name.removesuffix('.open')}.gz")
    assert gzip.decompress(closed.read_bytes()) == torn
    *lines, last = torn.split(b"\n")
    assert json.loads(lines[0])["event"] == "start"
    assert last == b'{"v":1,"seq":'


def test_closed_files_become_parquet(start: Start, connect: Connect, data_dir: Path) -> None:
    """A separate process replaces closed files; the open file is not touched."""
    daemon = start()
    BROKER.register(connect(daemon))
    root = data_dir / "heartbeats"
    left = wait_for_file(root, ".open")
    daemon.kill()

    again = start("--heartbeat-log-compact", "drop")

    made = wait_for_file(root, ".parquet")
    assert left.name.removesuffix(".jsonl.open") == made.stem
    until(lambda: not made.with_suffix(".jsonl.gz").exists())
    assert again.lines("heartbeat_log_not_compacted") == []
    # The file that is being written.
    until(lambda: len(list(root.rglob("*.open"))) == 1)
