"""The torture's judgement: which routes are wrong, which brokers were evicted, and which server stands first."""

import json
from dataclasses import replace
from typing import Final

from benchmarks.torture.load import Broker, Probe, view_of
from benchmarks.torture.suite import Cell, table
from tests.netns.network import Host, Network

HOST: Final = Host(Network(), "ns1", "10.0.0.1")
FINE: Final = Cell(0, 0.0, 1.0, 100, 0, 0, 0.5, 50.0, {"date": "2030-01-02", "commit": "abc"})


def test_broker_without_address_is_not_in_a_view() -> None:
    """A route may name the queues of a broker that it has no address of."""
    route = {
        "brokerDatas": [
            {"brokerName": "a", "brokerAddrs": {"0": "10.0.0.20:10911"}},
            {"brokerName": "b", "brokerAddrs": {}},
        ],
        "queueDatas": [{"brokerName": "a", "readQueueNums": 8}, {"brokerName": "b", "readQueueNums": 8}],
    }

    assert view_of(json.dumps(route).encode()) == {"a": 8}


def test_probe_counts_an_acknowledged_broker_that_vanishes_once() -> None:
    """A broker is evicted wrongly when it lives and its registration was acknowledged before."""
    broker = Broker(0, HOST, "10.0.0.20", ["10.0.0.1"])
    probe = Probe(HOST, [broker])

    probe.look({}, 1.0)
    assert (probe.evicted, probe.true_since) == (0, None)
    broker.acknowledged["10.0.0.1"] = 2.0
    for view, now in (({"broker-0": 8}, 3.0), ({}, 4.0), ({}, 5.0), ({"broker-0": 8}, 6.5)):
        probe.look(view, now)
    assert (probe.evicted, probe.longest_missing, probe.true_since) == (1, 2.5, 6.5)

    broker.died_at = 7.0
    probe.look({}, 8.0)
    assert (probe.evicted, probe.has_dead) == (1, False)


def test_best_server_of_a_fault_stands_first() -> None:
    """A wrong route is worse than a failed pull, and tables that stay wrong are worse than both."""
    cells = {
        "apache": replace(FINE, wrong=1),
        "ours": replace(FINE, failed=9),
        "rust": replace(FINE, true_seconds=None),
    }

    rows = table({"kill": cells}).splitlines()[2:]

    assert [row.split(" | ")[1] for row in rows] == ["ours", "Apache's 5.5.0", "rocketmq-rust 1.0.0"]
    assert rows[0] == (
        "| kill -9 of a server, started again after 3 s: `kill` | ours | 0 | 1.0 s | 9 | 0 | 100 | 0.5 s | 50 MB "
        "| 2030-01-02 |"
    )
