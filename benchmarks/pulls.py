"""Route questions per second, and the latency of the slowest."""

from functools import partial
from typing import Final

from benchmarks import loads
from benchmarks.figures import Figure, Target, ratios, spelt_medians
from benchmarks.loads import Load
from benchmarks.rounds import Bench
from benchmarks.seeding import Wire, pulled_body_bytes, pulled_brokers, register
from benchmarks.servers import WITHOUT_LOG, daemon, limit
from namesrv_remoting.codes import SerializeType

NATIVE: Final = ("--header", "native")
# 50 connections with 8 questions in flight ask as much at a time as 400 with one
PIPELINED: Final = ("--connections", "50", "--depth", "8")


def measure(bench: Bench) -> list[Figure]:
    """Pulls against the limit server, JSON and native, and pipelined ones."""
    with daemon(bench, *WITHOUT_LOG) as server, Wire(server) as brokers:
        register(brokers, pulled_brokers())
        json_bytes = pulled_body_bytes(brokers, SerializeType.JSON)
        native_bytes = pulled_body_bytes(brokers, SerializeType.MSGPACK)
        with limit(bench, json_bytes) as json_limit, limit(bench, native_bytes) as native_limit:
            found = bench.in_turn(
                "pulls",
                {
                    "json": partial(loads.run, bench, server),
                    "json limit": partial(loads.run, bench, json_limit),
                    "pipelined": partial(loads.run, bench, server, *PIPELINED),
                    "native": partial(loads.run, bench, server, *NATIVE),
                    "native limit": partial(loads.run, bench, native_limit, *NATIVE),
                },
            )
    return [
        *_against_limit("json", f"JSON, {json_bytes:,} bytes", found["json"], found["json limit"]),
        *_against_limit("native", f"native, {native_bytes:,} bytes", found["native"], found["native limit"]),
        Figure(
            "pulls.pipelined",
            "JSON: rate of 50 connections x 8 in flight / of 200 x 1",
            "times",
            ratios(loads.rates(found["pipelined"]), loads.rates(found["json"])),
            Target(">=", 1),
            behind=spelt_medians("per_second", loads.rates(found["pipelined"]), loads.rates(found["json"])),
        ),
    ]


def _against_limit(name: str, what: str, subject: list[Load], reference: list[Load]) -> list[Figure]:
    return [
        Figure(
            f"pulls.{name}.rate",
            f"{what}: rate / limit server's",
            "times",
            ratios(loads.rates(subject), loads.rates(reference)),
            Target(">=", 0.6),
            behind=spelt_medians("per_second", loads.rates(subject), loads.rates(reference)),
        ),
        Figure(
            f"pulls.{name}.p99",
            f"{what}: p99 / limit server's",
            "times",
            ratios(loads.p99s(subject), loads.p99s(reference)),
            Target("<=", 1.8),
            behind=spelt_medians("milliseconds", loads.p99s(subject), loads.p99s(reference)),
        ),
        Figure(
            f"pulls.{name}.computing",
            f"{what}: computing time of an answer / limit server's",
            "times",
            ratios(loads.computing(subject), loads.computing(reference)),
            behind=spelt_medians("microseconds", loads.computing(subject), loads.computing(reference)),
        ),
    ]
