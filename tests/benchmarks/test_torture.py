"""The torture's judgement: which routes are wrong, which brokers were evicted, and which server stands first."""

import base64
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from benchmarks.harness.build import ROOT
from benchmarks.harness.figures import BenchError
from benchmarks.harness.hosts import drop
from benchmarks.harness.table import BEGIN, END
from benchmarks.torture.coordination import Etcd, ZooKeeper
from benchmarks.torture.load import Probe
from benchmarks.torture.name_servers import RegisteredBroker, RocketMQ, brokers_in
from benchmarks.torture.suite import Cell, replaced, table
from tests.netns.network import Host, Network

HOST: Final = Host(Network(), "ns1", "10.0.0.1")
FINE: Final = Cell(0, 0.0, 1.0, 100, 0, 0, 0.5, 50.0, {"date": "2030-01-02", "commit": "abc"})


def test_machine_without_nft_cannot_drop_packets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the missing program, as errors of other programs that a measurement needs."""
    ip = tmp_path / "ip"
    ip.write_text("#!/bin/sh\nexit 255\n")
    ip.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(BenchError, match="nft"):
        drop(Network())


def test_torture_does_not_begin_without_descriptors_for_the_herd() -> None:
    """Clients without a socket would count as failed pulls of the server."""
    torture = f"ulimit -n 1000 && exec {sys.executable} -m benchmarks torture --peer ours --only herd"
    done = subprocess.run(["sh", "-c", torture], cwd=ROOT, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (1, "bench: 1000 open files allowed (ulimit -Hn), 2500 needed\n")


def test_broker_without_address_is_not_in_a_view() -> None:
    """A route may name the queues of a broker that it has no address of."""
    route = {
        "brokerDatas": [
            {"brokerName": "a", "brokerAddrs": {"0": "10.0.0.20:10911"}},
            {"brokerName": "b", "brokerAddrs": {}},
        ],
        "queueDatas": [{"brokerName": "a", "readQueueNums": 8}, {"brokerName": "b", "readQueueNums": 8}],
    }

    assert brokers_in(json.dumps(route).encode()) == {"a": 8}


def test_probe_counts_an_acknowledged_broker_that_vanishes_once() -> None:
    """A broker is evicted wrongly when it lives and its registration was acknowledged before."""
    broker = RegisteredBroker(0, (HOST, "10.0.0.20"), ["10.0.0.1"])
    probe = Probe(RocketMQ(), (HOST, HOST.address), [broker])

    probe.look({}, 1.0)
    assert (probe.evicted, probe.true_since) == (0, None)
    broker.acknowledged["10.0.0.1"] = 2.0
    for view, now in (({"broker-0": 8}, 3.0), ({}, 4.0), ({}, 5.0), ({"broker-0": 8}, 6.5)):
        probe.look(view, now)
    assert (probe.evicted, probe.longest_missing, probe.true_since) == (1, 2.5, 6.5)

    broker.died_at = 7.0
    probe.look({}, 8.0)
    assert (probe.evicted, probe.has_dead) == (1, False)


def test_nodes_of_zookeeper_are_brokers() -> None:
    """Nodes arrive in parts; of a broker that changes its queues the larger number counts; errors have none."""
    dialect = ZooKeeper()
    names = [b"broker-0:8", b"broker-1:8", b"broker-1:9"]
    body = bytes(16) + len(names).to_bytes(4) + b"".join(len(name).to_bytes(4) + name for name in names)
    data = len(body).to_bytes(4) + body

    assert [dialect.response_in(data[:end]) for end in (0, 3, len(data) - 1)] == [None] * 3
    response = dialect.response_in(data)
    assert response is not None
    assert dialect.view_of(response) == {"broker-0": 8, "broker-1": 9}
    assert dialect.view_of(bytes(12) + (-101).to_bytes(4, signed=True)) is None


@pytest.mark.parametrize("is_chunked", [False, True])
def test_keys_of_etcd_are_brokers(*, is_chunked: bool) -> None:
    """A range of keys arrives in parts, with its length or in chunks; an error has no brokers."""
    dialect = Etcd()
    kvs = [
        {"key": base64.b64encode(key).decode(), "value": base64.b64encode(value).decode()}
        for key, value in ((b"/brokers/broker-0", b"8"), (b"/brokers/broker-1", b"9"))
    ]
    body = json.dumps({"header": {}, "kvs": kvs}).encode()
    if is_chunked:
        chunks = (body[:10], body[10:])
        body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    head = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: %d" % len(body)
    data = b"HTTP/1.1 200 OK\r\n%b\r\n\r\n%b" % (head, body)

    assert [dialect.response_in(data[:end]) for end in (0, 20, len(data) - 1)] == [None] * 3
    response = dialect.response_in(data)
    assert response is not None
    assert dialect.view_of(response) == {"broker-0": 8, "broker-1": 9}
    assert dialect.view_of({"error": "no leader"}) is None


def test_best_server_of_a_fault_stands_first() -> None:
    """A wrong route is worse than a failed pull, and tables that stay wrong are worse than both."""
    cells = {
        "apache": replace(FINE, wrong=1),
        "ours": replace(FINE, failed=9),
        "rust": replace(FINE, true_seconds=None),
    }

    rows = table({"kill": cells}).splitlines()[2:]

    assert [row.split(" | ")[1] for row in rows] == ["ours", "Apache's 5.5.0", "rocketmq-rust 1.0.0"]


def test_page_loses_no_row() -> None:
    """A machine that has measured some cells adds to a page, but does not take away the cells of others."""
    page = f"# Torture\n\n{BEGIN}\n{END}\n"
    one, two = ({"kill": dict.fromkeys(peers, FINE)} for peers in (("ours",), ("ours", "apache")))

    written = replaced(replaced(page, one), two)

    assert table(two) in written
    with pytest.raises(BenchError, match="would lose, as they were not measured here: 1"):
        replaced(written, one)
