"""The snapshot file, and readiness, which waits for the brokers in it."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from namesrv.routeinfo.tables.write_removal import RemovalEnd
from namesrv.state.snapshot import ExpectedBroker, Readiness, Snapshot, decode, load, save
from namesrv_runtime.durable_file import SealedFileError, seal

MASTER = ExpectedBroker("c", "broker-a", 0, "10.0.0.1:10911")
SLAVE = ExpectedBroker("c", "broker-a", 1, "10.0.0.2:10911")
SMALL = Snapshot(
    saved_ms=1_738_367_999_000,
    boot_id="b00f",
    brokers=(MASTER, SLAVE),
    wiped=((None, "broker-a"), ("c", "broker-b")),
)
# The snapshot in place of one that cannot be read.
LOST = Snapshot(saved_ms=0, boot_id="", is_incomplete=True)

CONTENT = (
    b'{"saved_ms":1738367999000,"boot_id":"b00f","brokers":['
    b'{"cluster":"c","broker_name":"broker-a","broker_id":0,"broker_addr":"10.0.0.1:10911"},'
    b'{"cluster":"c","broker_name":"broker-a","broker_id":1,"broker_addr":"10.0.0.2:10911"}],'
    b'"wiped":[[null,"broker-a"],["c","broker-b"]],"version":1}'
)


def test_bytes_of_a_snapshot_file(tmp_path: Path) -> None:
    """The format is fixed byte by byte, because older and newer versions read it."""
    save(tmp_path / "snapshot.json", SMALL)

    checksum = hashlib.sha256(CONTENT).hexdigest().encode()
    assert (tmp_path / "snapshot.json").read_bytes() == b'{"sha256":"' + checksum + b'","content":' + CONTENT + b"}\n"


def test_ends_of_removed_write_permissions_in_the_file(tmp_path: Path) -> None:
    """They are in the file, if there are any, and a file of an earlier version has none."""
    snapshot = replace(SMALL, wiped_ends=(RemovalEnd("broker-a", 87, awaits_master=True),))
    save(tmp_path / "snapshot.json", snapshot)

    assert b'"wiped_ends":[["broker-a",87,true]]' in (tmp_path / "snapshot.json").read_bytes()
    assert load(tmp_path / "snapshot.json") == snapshot
    assert decode(seal(json.loads(CONTENT))) == SMALL


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (CONTENT.replace(b'"broker_id":1', b'"broker_id":"1"'), r"unexpected content: .*\$.brokers\[1\].broker_id"),
        (CONTENT.replace(b'"boot_id"', b'"boat_id"'), "unexpected content: .*missing required field `boot_id`"),
    ],
    ids=["wrong type", "missing field"],
)
def test_sealed_file_of_another_kind_is_refused(content: bytes, reason: str) -> None:
    """A file with a right checksum and other contents is refused with the reason."""
    with pytest.raises(SealedFileError, match=reason):
        decode(seal(json.loads(content)))


def test_unreadable_file_logs_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A directory in place of the file is logged, and the server starts without a snapshot."""
    (tmp_path / "snapshot.json").mkdir()

    assert load(tmp_path / "snapshot.json") == LOST
    assert [record.msg for record in caplog.records] == ["snapshot_not_read"]


def test_damaged_file_that_cannot_be_set_aside_logs_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The server starts without a snapshot although the damaged file cannot be renamed."""
    path = tmp_path / ("s" * 250)
    path.write_bytes(b"damaged")

    assert load(path) == LOST
    assert [record.msg for record in caplog.records] == ["snapshot_not_set_aside"]
    assert path.read_bytes() == b"damaged"


def test_damaged_file_is_replaced_by_an_incomplete_snapshot(tmp_path: Path) -> None:
    """Also a server that starts after the next kill knows that a snapshot was lost; the damaged file is kept."""
    path = tmp_path / "snapshot.json"
    path.write_bytes(b"damaged")

    assert [load(path), load(path)] == [LOST, LOST]
    [kept] = tmp_path.glob("snapshot.json.damaged-*")
    assert kept.read_bytes() == b"damaged"


@pytest.mark.parametrize(
    ("expected", "wait", "now", "reason"),
    [
        ([], 45.0, 1_000.0, "ready: no brokers expected"),
        ([MASTER], 0.0, 1_000.0, "ready: waited 0 s, without 1 of 1 expected broker: c/broker-a/0 at 10.0.0.1:10911"),
        (
            [MASTER],
            45.0,
            1_045.0,
            "ready: waited 45 s, without 1 of 1 expected broker: c/broker-a/0 at 10.0.0.1:10911",
        ),
        (
            [MASTER],
            45.0,
            1_044.9,
            "not ready: waiting 0 s more for 1 of 1 expected broker: c/broker-a/0 at 10.0.0.1:10911",
        ),
    ],
)
def test_ready_without_expected_brokers_or_after_the_wait(
    expected: list[ExpectedBroker], wait: float, now: float, reason: str
) -> None:
    """A server is ready without expected brokers or after its wait, and stays ready."""
    readiness = Readiness(expected, wait, 1_000.0)

    assert readiness.reason(now) == reason
    assert reason.startswith("ready") == readiness.is_ready(now) == readiness.is_ready(1_000.0)
    assert bool(expected) == readiness.expects_brokers


def test_ready_when_all_expected_brokers_registered() -> None:
    """An expected broker is identified by cluster, name and id and counts once; other brokers do not count."""
    readiness = Readiness([MASTER, MASTER, SLAVE], wait_seconds=45.0, now=1_000.0)
    for cluster, name, number in (("other", "broker-a", 0), ("c", "broker-x", 0), ("c", "broker-a", 2)):
        readiness.broker_seen(cluster, name, number, members=1)
    assert repr(readiness) == "<Readiness [waiting | 2 of 2 missing]>"

    for _ in range(2):
        readiness.broker_seen("c", "broker-a", 0, members=1)
        assert (readiness.missing, readiness.is_ready(1_001.0)) == ((SLAVE,), False)

    readiness.broker_seen("c", "broker-a", 1, members=1)
    assert (readiness.missing, readiness.is_ready(1_001.0)) == ((), True)
    assert readiness.reason(1_001.0) == "ready: all 2 expected brokers are back"


def test_group_with_its_master_and_all_members_is_complete() -> None:
    """Brokers that exchanged roles have other ids than expected; a new slave does not stand for a missing master."""
    readiness = Readiness([MASTER, replace(SLAVE, broker_id=2)], wait_seconds=45.0, now=1_000.0)
    readiness.broker_seen("c", "broker-a", 1, members=1)
    readiness.broker_seen("c", "broker-a", 3, members=2)
    assert not readiness.is_ready(1_001.0)

    readiness.broker_seen("c", "broker-a", 0, members=2)
    assert readiness.is_ready(1_001.0)


def test_lost_snapshot_waits_for_the_whole_time() -> None:
    """After a lost snapshot the server waits its whole time, since the expected brokers are unknown."""
    readiness = Readiness((), 45.0, 1_000.0, expects_unknown=True)
    readiness.broker_seen("c1", "broker-a", 0, members=1)

    assert not readiness.is_ready(1_044.9)
    assert readiness.reason(1_044.9) == "not ready: waiting 0 s more, the snapshot may lack brokers"
    assert readiness.is_ready(1_045.0)
    assert readiness.reason(1_045.0) == "ready: waited 45 s, the snapshot may lack brokers"
