"""Route requests and heartbeats: rates and latencies compared with the limit server, and with the heartbeat log."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from benchmarks.harness.figures import Figure, at_least, at_most
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


# loads, and those of their reference
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
            references = {
                "904": (HEARTBEATS, empty),
                "322": (_VERSIONS, versions),
                "904.native": (_NATIVE_HEARTBEATS, empty),
            }
            cases: dict[str, Callable[[], Load]] = {}
            for name, (script, reference) in references.items():
                cases[name] = partial(run, bench, server, script, seconds=1)
                cases[f"{name} limit"] = partial(run, bench, reference, script, seconds=1)
            results = bench.in_turn("heartbeats", cases)
    figures: list[Figure] = []
    for name in references:
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
    with (
        daemon(bench, STAYING) as logging,
        daemon(bench, *WITHOUT_LOG, STAYING) as without,
        Wire(logging) as to_logging,
        Wire(without) as to_other,
    ):
        for wire in (to_logging, to_other):
            register(wire, [*pulled_brokers(), *BROKERS])

        def with_and_without(what: str, script: Script, seconds: int | None = None) -> _Loads:
            cases = {
                name: partial(run, bench, server, script, seconds=seconds)
                for name, server in (("with", logging), ("without", without))
            }
            return list(bench.in_turn(f"{what} with and without the heartbeat log", cases).values())

        # A client requests its topics every 30 s.
        again = with_and_without("pulls", pulls(20))
        first = with_and_without("first pulls", PULLS)
        # Heartbeats are last, because writing and compressing their lines takes some time afterwards.
        heartbeats = with_and_without("heartbeats", HEARTBEATS, 1)
    of = ": rate with the log / without"
    what = f"pulls of 20 topics each, again and again{of}"
    first_what = f"pulls of 1,000 topics each: nearly every response is a first one, a line{of}"
    late = "the same: p99 with the log / without"
    return [
        compared_loads("heartbeat_log.pulls.rate", what, "per_second", again, at_least(0.95)),
        compared_loads("heartbeat_log.pulls.p99", late, "p99_ms", again),
        compared_loads("heartbeat_log.first_pulls.rate", first_what, "per_second", first),
        compared_loads("heartbeat_log.904.rate", f"904 JSON, each a line{of}", "per_second", heartbeats),
    ]
