"""Route requests and heartbeats: rates and latencies compared with the limit server, and with the heartbeat log."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from benchmarks.harness.figures import Figure, Target, at_least, at_most
from benchmarks.harness.loads import PIPELINED, PULLS, Load, Script, compared_loads, pulls, run, values
from benchmarks.harness.rounds import Bench
from benchmarks.harness.servers import WITHOUT_LOG, daemon, limit
from benchmarks.harness.wire import Wire, many_brokers, pulled_body_bytes, pulled_brokers, register
from namesrv_remoting.codes import SerializeType

NATIVE: Final = SerializeType.MSGPACK
_NATIVE_PULLS: Final = pulls(kind=NATIVE)
BROKERS: Final = many_brokers(1_000)
HEARTBEATS: Final = Script([broker.heartbeat() for broker in BROKERS])
_NATIVE_HEARTBEATS: Final = Script([broker.heartbeat(NATIVE) for broker in BROKERS])
# Requests with the registered version: the response is "not changed", as it nearly always is in production.
_VERSIONS: Final = Script([broker.version_query() for broker in BROKERS])
_VERSION_BYTES: Final = len(msgspec.json.encode({"counter": 1, "stateVersion": 0, "timestamp": 0}))
# The end of a load's connections must not evict the brokers whose heartbeats it sent.
STAYING: Final = "--no-evict-on-disconnect"


def measure_pulls(bench: Bench) -> list[Figure]:
    """Route requests per second, and the latency of the slowest."""
    with daemon(bench, *WITHOUT_LOG) as server, Wire(server) as brokers:
        register(brokers, pulled_brokers())
        json_bytes, native_bytes = (pulled_body_bytes(brokers, kind) for kind in (SerializeType.JSON, NATIVE))
        with limit(bench, json_bytes) as json_limit, limit(bench, native_bytes) as native_limit:
            results = bench.in_turn(
                "pulls",
                {
                    "json": partial(run, bench, server),
                    "json limit": partial(run, bench, json_limit),
                    "pipelined": partial(run, bench, server, PULLS, *PIPELINED),
                    "native": partial(run, bench, server, _NATIVE_PULLS),
                    "native limit": partial(run, bench, native_limit, _NATIVE_PULLS),
                },
            )
    what = "JSON: rate of 50 connections x 8 in flight / of 200 x 1"
    pipelined = results["pipelined"], results["json"]
    return [
        *_pull_figures("json", f"JSON, {json_bytes:,} bytes", (results["json"], results["json limit"])),
        *_pull_figures("native", f"native, {native_bytes:,} bytes", (results["native"], results["native limit"])),
        compared_loads("pulls.pipelined", what, "per_second", pipelined, at_least(1)),
    ]


# our loads, and those of the limit server
_Loads = Sequence[Sequence[Load]]


def _pull_figures(name: str, what: str, ours_and_limits: _Loads) -> list[Figure]:
    name, what, of = f"pulls.{name}", f"{what}: ", " / limit server's"
    return [
        compared_loads(f"{name}.rate", f"{what}rate{of}", "per_second", ours_and_limits, at_least(0.6)),
        compared_loads(f"{name}.p99", f"{what}p99{of}", "p99_ms", ours_and_limits, at_most(1.8)),
        _cpu(name, what, ours_and_limits),
    ]


def _cpu(name: str, what: str, ours_and_limits: _Loads) -> Figure:
    what = f"{what}processor time of a response / limit server's"
    return compared_loads(f"{name}.computing", what, "cpu_us", ours_and_limits)


def measure_heartbeats(bench: Bench) -> list[Figure]:
    """Heartbeats per second of 1,000 brokers, against the limit server with responses of the same size."""
    with daemon(bench, *WITHOUT_LOG, STAYING) as server, Wire(server) as wire:
        register(wire, BROKERS)
        with limit(bench, 0) as empty, limit(bench, _VERSION_BYTES) as versions:
            cases = {
                "904": (HEARTBEATS, empty),
                "322": (_VERSIONS, versions),
                "904.native": (_NATIVE_HEARTBEATS, empty),
            }
            results = bench.in_turn(
                "heartbeats",
                {
                    f"{name}{suffix}": partial(run, bench, whose, script, seconds=1)
                    for name, (script, reference) in cases.items()
                    for suffix, whose in (("", server), (" limit", reference))
                },
            )
    figures: list[Figure] = []
    for name in cases:
        loads, what = (results[name], results[f"{name} limit"]), f"{name.replace('.', ' ')}: "
        rates = values("per_second", results[name])
        figures += [
            Figure(f"heartbeats.{name}.rate", f"{what}rate", "per_second", rates, at_least(100_000)),
            compared_loads(f"heartbeats.{name}.ratio", f"{what}rate / limit server's", "per_second", loads),
            _cpu(f"heartbeats.{name}", what, loads),
        ]
    return figures


def measure_heartbeat_log(bench: Bench) -> list[Figure]:
    """Cost of the heartbeat log for pulls and heartbeats."""
    # A client requests its topics every 30 s.
    again = pulls(20)
    with (
        daemon(bench, STAYING) as logging,
        daemon(bench, *WITHOUT_LOG, STAYING) as without,
        Wire(logging) as to_logging,
        Wire(without) as to_other,
    ):
        for wire in (to_logging, to_other):
            register(wire, [*pulled_brokers(), *BROKERS])
        # Heartbeats are last, because writing and compressing their lines takes some time afterwards.
        results = {
            name: bench.in_turn(
                f"{name} and the heartbeat log",
                {
                    key: partial(run, bench, server, script, seconds=seconds)
                    for key, server in (("with", logging), ("without", without))
                },
            )
            for name, script, seconds in (
                ("pulls", again, None),
                ("first_pulls", PULLS, None),
                ("904", HEARTBEATS, 1),
            )
        }

    def ratio(name: str, what: str, target: Target | None = None) -> Figure:
        what, loads = f"{what}: rate with the log / without", list(results[name].values())
        return compared_loads(f"heartbeat_log.{name}.rate", what, "per_second", loads, target)

    late = list(results["pulls"].values())
    return [
        ratio("pulls", "pulls of 20 topics each, again and again", at_least(0.95)),
        compared_loads("heartbeat_log.pulls.p99", "the same: p99 with the log / without", "p99_ms", late),
        ratio("first_pulls", "pulls of 1,000 topics each: nearly every response is a first one, a line"),
        ratio("904", "904 JSON, each a line"),
    ]
