"""Audit lines of several servers as acts."""

from typing import Any

from namesrv_console.views.audit import acts


def line(ts_ms: int, nameserver: str, **fields: Any) -> dict[str, Any]:
    """A line about a KV value."""
    change = {"what": "kv", "namespace": "n", "key": "k", "before": None, "after": "v"}
    about = {"event": "change", "account": "olga", "peer": f"10.0.0.1:{ts_ms % 997}", "request": "PUT_KV_CONFIG"}
    return {"ts_ms": ts_ms, "nameserver": nameserver, **about, "changes": [change], **fields}


def test_equal_lines_of_several_servers_are_one_act() -> None:
    """Within 15 s, by one account from one address; the port, which differs, does not count."""
    lines = [
        line(100_000, "ns1"),
        line(99_900, "ns2"),
        line(99_800, "ns3", account="ben"),
        line(99_700, "ns3", peer="10.0.0.2:1"),
        line(85_000, "ns3"),
        line(84_999, "ns4"),
        line(84_000, "ns1"),
    ]

    assert [(act.event["ts_ms"], act.servers) for act in acts(lines)] == [
        (100_000, ["ns1", "ns2", "ns3"]),
        (99_800, ["ns3"]),
        (99_700, ["ns3"]),
        (84_999, ["ns4", "ns1"]),
    ]


def test_equal_lines_of_one_server_stay_two_acts() -> None:
    """A repeated change is another act."""
    assert [act.servers for act in acts([line(2_000, "ns1"), line(1_000, "ns1")])] == [["ns1"], ["ns1"]]
