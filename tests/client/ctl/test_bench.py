"""The command `bench`."""

from pathlib import Path

import pytest

from namesrv_client.ctl.commands.bench import percentile
from tests.support.apache_server import ApacheFront
from tests.support.ctl import address_of, at, ctl, nobody
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import Broker, registration
from tests.support.raw_peer import until

QUICK = ("--seconds", "0.1", "--connections", "2")


async def test_bench_says_what_it_does_and_measures_it(tmp_path: Path) -> None:
    """Questions for the first topic, over the connections that were asked for, which are gone afterwards."""
    async with namesrv_in_process(tmp_path) as server:
        await (await server.connect()).register(Broker())
        measured = await ctl(*at(server), "bench", *QUICK, "-o", "json")

        assert 0 == measured.code
        assert [f"asking {address_of(server)} for the route of T over 2 connections for 0.1 s"] == measured.problems
        (found,) = measured.json["servers"]
        assert [
            "server", "protocol", "topic", "topic_known", "connections", "seconds", "requests", "requests_per_second",
            "p50_ms", "p99_ms", "max_ms", "errors",
        ] == list(found)  # fmt: skip
        assert (address_of(server), "native", "T", True, 2, 0) == (
            found["server"],
            found["protocol"],
            found["topic"],
            found["topic_known"],
            found["connections"],
            found["errors"],
        )
        assert 0.1 <= found["seconds"]
        assert found["requests"] / found["seconds"] == pytest.approx(found["requests_per_second"], rel=0.01)
        assert 0 < found["p50_ms"] <= found["p99_ms"] <= found["max_ms"]
        # and two to see that connections are there
        assert found["requests"] + 2 == server.namesrv.fast_lane.pulls
        await until(lambda: len(server.namesrv.connections) == 1)


async def test_bench_of_apaches_server_asks_in_json(tmp_path: Path) -> None:
    """For the topic that it was told."""
    async with namesrv_in_process(tmp_path) as server, ApacheFront(server.address) as apache:
        await (await server.connect()).register(Broker(), registration("T", "U"))
        measured = await ctl(*at(apache), "bench", "--topic", "U", *QUICK)

        assert 0 == measured.code
        assert ["SERVER", "PROTOCOL", "REQUESTS", "REQUESTS/S", "P50 MS", "P99 MS", "MAX MS", "ERRORS"] == (
            measured.cells[0]
        )
        assert [address_of(apache), "rocketmq"] == measured.cells[1][:2]
        assert {(0, 105)} == set(apache.asked[-10:])


async def test_bench_without_a_topic_says_so(tmp_path: Path) -> None:
    """That there is none is an answer, too."""
    async with namesrv_in_process(tmp_path) as server:
        measured = await ctl(*at(server), "bench", *QUICK, "-o", "json")

        told = "for the route of namesrvctl-bench, which it does not know, over 2 connections for 0.1 s"
        assert (0, [f"asking {address_of(server)} {told}"]) == (measured.code, measured.problems)
        (found,) = measured.json["servers"]
        assert (False, True) == (found["topic_known"], found["requests"] > 0)


async def test_errors_are_counted_and_are_a_no(tmp_path: Path) -> None:
    """A server that lets in no more connections, here; nothing was measured then."""
    async with namesrv_in_process(tmp_path, max_connections=2) as server:
        measured = await ctl(*at(server), "bench", "--seconds", "0.1", "--connections", "8", "-o", "json")

        (found,) = measured.json["servers"]
        assert (1, True, 0, None) == (measured.code, found["errors"] > 0, found["requests"], found["p50_ms"])
        assert f"{address_of(server)}: {found['errors']} errors, the last: connection" in measured.problems[-1]


async def test_bench_with_one_server_down_measures_the_others(tmp_path: Path) -> None:
    """As any question; with nobody there it is 2."""
    async with namesrv_in_process(tmp_path) as server:
        with nobody() as absent:
            one = await ctl(*at(absent, server), "bench", *QUICK, "-o", "json")
            none = await ctl(*at(absent), "bench", *QUICK, "-o", "json")

    assert (0, [False, None]) == (one.code, [found.get("answered") for found in one.json["servers"]])
    assert (2, [False]) == (none.code, [found.get("answered") for found in none.json["servers"]])


@pytest.mark.parametrize("option", [("--seconds", "61"), ("--seconds", "0"), ("--connections", "257")])
async def test_bench_is_bounded(option: tuple[str, str]) -> None:
    """It is a load."""
    assert 2 == (await ctl("bench", *option)).code


def test_percentiles_are_of_the_nearest_rank() -> None:
    """In milliseconds; the median of four is the second, the 99th of a hundred the 99th."""
    hundred = [number / 1000 for number in range(1, 101)]

    assert (50.0, 99.0, 100.0) == (percentile(hundred, 0.5), percentile(hundred, 0.99), percentile(hundred, 1.0))
    assert 2.0 == percentile([0.001, 0.002, 0.003, 0.004], 0.5)
    assert (7.0, 7.0) == (percentile([0.007], 0.5), percentile([0.007], 0.99))
    assert percentile([], 0.5) is None
