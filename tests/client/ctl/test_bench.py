"""The command `bench`."""

from pathlib import Path

import pytest

from namesrv_client.ctl.commands.bench import percentile
from tests.support.apache_server import ApacheFront
from tests.support.ctl import address_of, at, ctl, one_server, refusing_address
from tests.support.fake_clock import until
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import Broker, registration

QUICK = ("--seconds", "0.1", "--connections", "2")


async def test_bench_announces_and_measures_its_load(tmp_path: Path) -> None:
    """`bench` requests the first topic over the given connections, and closes them at the end."""
    async with one_server(tmp_path) as (server, where):
        await (await server.connect()).register(Broker())
        measured = await ctl(*at(where), "bench", *QUICK, "-o", "json")

        announced = f"asking {where} for the route of T over 2 connections for 0.1 s"
        assert (measured.code, measured.problems) == (0, [announced])
        (found,) = measured.json["servers"]
        of_topic = {"topic": "T", "topic_known": True}
        known = {"server": where, "protocol": "native", **of_topic, "connections": 2, "errors": 0}
        assert known == {name: found[name] for name in known}
        figures = {"seconds", "requests", "requests_per_second", "p50_ms", "p99_ms", "max_ms"}
        assert set(found) == {*known, *figures}
        assert found["seconds"] >= 0.1
        assert found["requests"] / found["seconds"] == pytest.approx(found["requests_per_second"], rel=0.01)
        assert 0 < found["p50_ms"] <= found["p99_ms"] <= found["max_ms"]
        # plus one request per connection to open it; the dispatcher answered the first
        assert server.namesrv.fast_path.pulls == found["requests"] + 1
        await until(lambda: len(server.namesrv.slots.connections) == 1)


async def test_bench_of_apache_server_uses_json(tmp_path: Path) -> None:
    """`bench` uses JSON for Apache's server and the given topic; an unknown topic can be measured, too."""
    async with namesrv_in_process(tmp_path) as server, ApacheFront(server.address) as apache:
        empty = await ctl(*at(apache), "bench", *QUICK, "-o", "json")
        await (await server.connect()).register(Broker(), registration("T", "U"))
        measured = await ctl(*at(apache), "bench", "--topic", "U", *QUICK)

        where = address_of(apache)
        known = "for the route of namesrvctl-bench, which it does not know, over 2 connections for 0.1 s"
        assert (empty.code, empty.problems) == (0, [f"asking {where} {known}"])
        assert (empty.json["servers"][0]["topic_known"], empty.json["servers"][0]["requests"] > 0) == (False, True)
        assert measured.code == 0
        heads = ["SERVER", "PROTOCOL", "REQUESTS", "REQUESTS/S", "P50 MS", "P99 MS", "MAX MS", "ERRORS"]
        assert measured.cells[0] == heads
        assert measured.cells[1][:2] == [where, "rocketmq"]
        assert set(apache.asked[-10:]) == {(0, 105)}


async def test_errors_are_counted_and_exit_with_1(tmp_path: Path) -> None:
    """Refused connections are counted as errors; an unreachable server does not hide the others."""
    async with one_server(tmp_path / "1", max_connections=2, share_per_ip_percent=100) as (_, where):
        measured = await ctl(*at(where), "bench", "--seconds", "0.1", "--connections", "8", "-o", "json")
        (found,) = measured.json["servers"]
        assert (measured.code, found["errors"] > 0, found["requests"], found["p50_ms"]) == (1, True, 0, None)
        assert f"{where}: {found['errors']} errors, the last: connection" in measured.problems[-1]
    async with one_server(tmp_path / "2") as (_, where):
        with refusing_address() as absent:
            one = await ctl(*at(absent, where), "bench", *QUICK, "-o", "json")
            none = await ctl(*at(absent), "bench", *QUICK, "-o", "json")
    assert (one.code, [found.get("answered") for found in one.json["servers"]]) == (0, [False, None])
    assert (none.code, [found.get("answered") for found in none.json["servers"]]) == (2, [False])


def test_percentiles_use_the_nearest_rank() -> None:
    """Percentiles in milliseconds: the median of four values is the second, the 99th of a hundred the 99th."""
    hundred = [number / 1000 for number in range(1, 101)]

    assert (percentile(hundred, 0.5), percentile(hundred, 0.99), percentile(hundred, 1.0)) == (50.0, 99.0, 100.0)
    assert percentile([0.001, 0.002, 0.003, 0.004], 0.5) == 2.0
    assert (percentile([0.007], 0.5), percentile([0.007], 0.99)) == (7.0, 7.0)
    assert percentile([], 0.5) is None
