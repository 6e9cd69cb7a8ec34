"""The rows of the scoreboard, by their ids."""

from collections.abc import Mapping
from typing import Final

from benchmarks.harness.build import ROOT
from benchmarks.harness.figures import at_least, at_most
from benchmarks.scoreboard import crowds, detection, fuzzing, outages, restarts, simulated
from benchmarks.scoreboard.page import Row
from benchmarks.scoreboard.programs import attack, histories, mutation, passing, speed, together
from benchmarks.soak.suite import soaked
from benchmarks.speed.eviction import mass_expiry
from tests.simulation.simulation import SCHEDULES, simulate, simulate_removals


def _all_but(folder: str, *left_out: str) -> list[str]:
    """The paths of all in a folder but these files and folders, which no experiment runs."""
    names = {path.name for path in (ROOT / folder).iterdir()}
    return [f"{folder}/{name}" for name in sorted(names - {*left_out, "__pycache__"})]


# Files that rows are about.
_SERVER: Final = ("runtime/namesrv_runtime", "remoting/namesrv_remoting", "namesrv/namesrv")
# The library in producers and consumers.
_CLIENT: Final = (*_SERVER, *_all_but("client/namesrv_client", "ctl", "health.py"))
_ALL: Final = (*_CLIENT, "broker_agent/namesrv_broker_agent")
_DECODERS: Final = ("remoting/namesrv_remoting", "tests/fuzz/targets.py")
# The simulation without the bugs that its tests plant into the code.
_SIMULATION: Final = _all_but("tests/simulation", "mutations.py", "test_planted_bugs.py", "test_simulation.py")
_SIMULATED: Final = (*_ALL, *_SIMULATION, "benchmarks/scoreboard/simulated.py")
_REPORT: Final = ("spark_jobs/namesrv_spark_jobs", "namesrv/namesrv/heartbeat_log")


ROWS: Final[Mapping[str, Row]] = {
    "L1": Row(
        "Route requests a second of one process",
        "0.6 of the limit server",
        "`make bench`, {size} rounds: 200 connections, 1,000 topics",
        speed("pulls", {"pulls.json.rate": None, "pulls.json.p99": None, "pulls.native.rate": None}),
        (*_SERVER, "benchmarks/speed/pulls.py"),
        full=5,
        why="a response takes a fifth more processor time than with a third path, which wrote to the descriptor behind "
        "the transport; more than half of the time is the kernel's",
    ),
    "L2": Row(
        "Memory of an idle connection",
        "6 KiB",
        "`make bench`: 10,000 that have pulled a route",
        speed("connections", {"connections.idle": at_most(6)}),
        (*_SERVER, "benchmarks/speed/memory.py"),
        full=5,
    ),
    "L3": Row(
        "Memory of 40,000 topics, each on 8 of 32 brokers",
        "400 MB",
        "`make bench`: registered, then each pulled in JSON",
        speed("memory", {"memory.shared.registered": at_most(400), "memory.shared.pulled": at_most(400)}),
        (*_SERVER, "benchmarks/speed/memory.py"),
        full=5,
    ),
    "L4": Row(
        "Longest stall while a broker with 10,000 topics registers ten times a second",
        "20 ms",
        "`make bench`, {size} rounds: one connection, one request in flight",
        speed("registration", {"registration.fields.stall": None, "registration.version.stall": None}),
        (*_SERVER, "benchmarks/speed/registration.py"),
        full=5,
    ),
    "H1": Row(
        "Malformed frames, headers and bodies",
        "no crash, hang or leak in 50 million",
        "{size} inputs for the decoders, guided by coverage; `make fuzz`, 20,000 examples for a whole server",
        together(fuzzing.decoders("H1", _DECODERS), fuzzing.whole_server(20_000)),
        (*_SERVER, "tests/fuzz"),
        full=50_000_000,
        size=1_000_000,
    ),
    "H2": Row(
        "2,000 peers that send a byte a second",
        "p99 of others doubles at most; 64 MiB",
        "`make abuse`, from 200 addresses",
        attack("slowloris", {"slowloris.p99": at_most(2), "slowloris.memory": at_most(67.1)}),
        (*_SERVER, "benchmarks/abuse/attacks.py"),
    ),
    "H3": Row(
        "The costliest frames from 1,000 connections, in a memory cgroup of 768 MiB",
        "512 MiB beside the tables, never killed",
        "`make abuse`: giant lengths, nested arrays, empty maps, zlib bombs, a million ext fields",
        attack("storm", {"storm.memory": None, "storm.killed": None}),
        (*_SERVER, "benchmarks/abuse/attacks.py"),
        why="p99 of pulls beside the storm is at its bound of three times the quiet one, and misses it in some runs: "
        "the loop reads up to 256 KiB at once from each of many connections",
    ),
    "H4": Row(
        "Memory of a peer before its first whole frame",
        "64 KiB each",
        "`make abuse`: 200 peers with 60 KB of a header each",
        attack("partial-headers", {"partial-headers.memory": at_most(13.1)}),
        (*_SERVER, "benchmarks/abuse/attacks.py"),
    ),
    "H5": Row(
        "1,000 watchers that never read",
        "disconnected before they take much memory; p99 of others triples at most",
        "`make abuse`: 50 watches of 100 changing topics each",
        attack("watches-unread", {"watches-unread.memory": None, "watches-unread.killed": None}),
        (*_SERVER, "benchmarks/abuse/attacks.py"),
        why="each iteration of the event loop may spend 2 ms on ended watches and 2 ms on requests",
    ),
    "H6": Row(
        "No descriptor left",
        "open connections are served with 20 % of a core, newcomers within 5 s once there is room",
        "20 descriptors left, 60 connections, {size} s",
        crowds.no_descriptors,
        (*_SERVER, "benchmarks/scoreboard/crowds.py"),
        full=5,
        short=1,
    ),
    "D1": Row(
        "A broker's connection ends: removal from routes",
        "p99 within 100 ms",
        "{size} deaths, one client that pulls back to back",
        detection.removals,
        (*_SERVER, "benchmarks/scoreboard/detection.py"),
        full=1_000,
        short=50,
    ),
    "D2": Row(
        "The same: notification of a watching client",
        "p99 within 250 ms",
        "{size} deaths",
        detection.notifications,
        (*_SERVER, "benchmarks/scoreboard/detection.py"),
        full=1_000,
        short=50,
    ),
    "D3": Row(
        "A broker falls silent on an open connection: removal from routes",
        "always within expiry + scan + 0.2 s",
        "{size} brokers, an expiry of 10 s, a scan every second",
        detection.silent_deaths,
        (*_SERVER, "benchmarks/scoreboard/detection.py"),
        full=200,
    ),
    "D4": Row(
        "The network of a client falls silent: change to another server",
        "always within 5 s",
        "{size} watching clients behind a proxy that stops forwarding",
        detection.half_open_connections,
        (*_CLIENT, "benchmarks/scoreboard/detection.py"),
        full=20,
    ),
    "D5": Row(
        "The staleness report against logs of known truth",
        "every removal and client to the microsecond",
        "generated logs with every fault, read by a plain-Python reference; random logs, read by it and by the report",
        passing(["tests/spark_jobs/test_generate.py", "tests/spark_jobs/test_agrees_with_reference.py"]),
        (*_REPORT, "tests/spark_jobs"),
    ),
    "D6": Row(
        "Live brokers evicted while servers are stopped now and then",
        "0 in 24 hours",
        "simulation of {size} hours, three servers, five brokers, a stop of 30 s every 10 min; times are a tenth",
        simulated.evictions(simulated.stops),
        _SIMULATED,
        full=24,
        short=1,
    ),
    "F1": Row(
        "A server with 10,000 topics is killed and starts again",
        "listens within 1 s, every topic pulled within 1.5 s",
        "{size} times, ten brokers; clients keep their routes meanwhile",
        restarts.kills,
        (*_ALL, "benchmarks/scoreboard/restarts.py"),
        full=5,
    ),
    "F2": Row(
        "A snapshot that is lost, torn or damaged",
        "never believed",
        "every bit flipped, every length cut, every system call of a write failed",
        passing(
            [
                "tests/runtime/test_sealed_file.py",
                "tests/runtime/test_durable_file.py",
                "tests/namesrv/state/test_snapshot.py",
            ]
        ),
        ("namesrv/namesrv/state", "runtime/namesrv_runtime", "tests/runtime", "tests/namesrv/state"),
    ),
    "F3": Row(
        "Confirmed KV changes that a killed server has lost",
        "0",
        "`make durability`: {size} servers killed, on a failing disk",
        passing(["tests/journeys/test_disk.py"], ["-k", "confirmed"], variable="NAMESRV_KILLS"),
        (*_SERVER, "tests/journeys/test_disk.py"),
        full=30,
    ),
    "F4": Row(
        "A server is stopped for 5 min and continues",
        "no live broker evicted, tables right afterwards",
        "simulation, {size} stops; times are a tenth",
        simulated.evictions(simulated.long_stop),
        _SIMULATED,
        full=200,
        short=5,
    ),
    "F5": Row(
        "A wall clock jumps by an hour, a day, to 1970 and back, and 100 times in 10 s",
        "no live broker evicted, no dead one kept",
        "simulation, {size} runs",
        simulated.evictions(simulated.clock_jumps),
        _SIMULATED,
        full=100,
        short=2,
    ),
    "F6": Row(
        "One of three servers is cut off for a minute",
        "no pull fails; the isolated server drops dead routes within expiry + scan + 0.2 s",
        "20 clients, ten pulls a second each, 4 brokers, {size} s; expiry 10 s, scan 1 s",
        outages.one_cut_off,
        (*_ALL, "benchmarks/scoreboard/outages.py"),
        full=60,
        short=5,
    ),
    "F7": Row(
        "Two of three servers are dead for ten minutes",
        "no pull fails, ages are reported",
        "the same, {size} s",
        outages.two_dead,
        (*_ALL, "benchmarks/scoreboard/outages.py"),
        full=600,
        size=30,
        short=3,
    ),
    "F8": Row(
        "All servers are dead for ten minutes, and an application starts",
        "routes and their age from disk; fresh ones within 5 s of a server's return",
        "three times, {size} s each",
        outages.all_dead,
        (*_ALL, "benchmarks/scoreboard/outages.py"),
        full=600,
        size=5,
    ),
    "F9": Row(
        "Rolling restart of three servers",
        "no failed pull, no incomplete response, at most 20 % of clients connect in one second",
        "`make bench`: 200 clients, ten pulls a second each",
        speed("rolling", {"rolling.failed": None, "rolling.incomplete": None, "rolling.moved": None}),
        (*_ALL, "benchmarks/speed/rolling.py"),
        full=5,
    ),
    "F10": Row(
        "Rolling upgrade of three servers from an older version, and back",
        "as for a restart",
        "the same, from and to a commit before quotas and audit trail",
        restarts.upgrades,
        (*_ALL, "benchmarks/scoreboard/restarts.py"),
    ),
    "F11": Row(
        "All clients and brokers return at once after a restart",
        "all are served within 10 s",
        "`make bench`, {size} rounds: 5,000 clients, 2,000 brokers",
        speed("herd", {"herd.polite": None, "herd.stall": None}),
        (*_SERVER, "benchmarks/harness/probe.py", "benchmarks/speed/herd.py"),
        full=5,
    ),
    "F12": Row(
        "Many brokers expire in one scan",
        "no stall over 20 ms",
        "{size} brokers",
        mass_expiry,
        (*_SERVER, "benchmarks/harness/probe.py", "benchmarks/speed/eviction.py"),
        full=5_000,
    ),
    "F13": Row(
        "A broker registers and dies, over and over",
        "right in the end, nothing left behind",
        "{size} times, back to back",
        crowds.flapping,
        (*_SERVER, "benchmarks/scoreboard/crowds.py"),
        full=600,
        short=100,
    ),
    "F14": Row(
        "Stale removals of a newer registration",
        "0 in a million schedules",
        "simulation, {size} schedules of brokers that leave, die and return, twenty in one run",
        simulated.seeds(
            "F14",
            _SIMULATED,
            simulate_removals,
            schedules=SCHEDULES,
            invariants=simulated.REMOVALS,
        ),
        _SIMULATED,
        full=1_000_000,
        size=10_000,
        short=100,
        goes_on=True,
    ),
    "F15": Row(
        "A disk that is full, read-only, broken or stuck",
        "serving continues, the state is visible, all is written later",
        "each fault for snapshot, KV configuration, heartbeat log and audit trail",
        passing(["tests/journeys/test_disk.py"]),
        (*_SERVER, "tests/journeys/test_disk.py"),
    ),
    "F16": Row(
        "Writes of the heartbeat log are stuck",
        "p99 of pulls grows by at most a fifth",
        "{size} rounds, in turn; 200 connections, 1,000 topics",
        crowds.stuck_log,
        (*_SERVER, "benchmarks/scoreboard/crowds.py"),
        full=5,
    ),
    "F17": Row(
        "A network that loses a tenth of the packets and delays the rest by 100 to 300 ms, for an hour",
        "no live broker evicted, 99.99 % of pulls fresh",
        "network namespaces; 4 brokers (heartbeat 3 s, expiry 12 s), 10 clients, ten pulls a second each; {size} s",
        outages.packet_loss,
        (*_ALL, "benchmarks/scoreboard/outages.py"),
        full=3_600,
        size=60,
    ),
    "F18": Row(
        "TLS handshakes beside pulls, and a replaced certificate",
        "290 of 300 handshakes a second, p99 of pulls doubles at most; no connection lost",
        "`make bench`, {size} rounds, and a journey",
        together(
            speed(
                "tls", {"tls.handshakes.rate": at_least(290), "tls.handshakes.p99": None, "tls.handshakes.wait": None}
            ),
            passing(["tests/journeys/test_tls.py"], ["-k", "certificate_is_replaced"]),
        ),
        (*_SERVER, "benchmarks/speed/tls.py"),
        full=5,
        why="a woken handshake thread interrupts the loop and computes its step, 0.4 ms, to the end. SCHED_IDLE: no "
        "handshake beside a busy loop; SCHED_BATCH, shorter time slices, pauses of the loop: p99 as high, half the "
        "handshakes",
    ),
    "M1": Row(
        "The tables against a model",
        "equal after every step of 20,000 histories",
        "Hypothesis: {size} histories of at most 60 steps",
        histories,
        ("namesrv/namesrv/routeinfo", "tests/namesrv/routeinfo/test_state_machine.py"),
        full=20_000,
        size=200,
    ),
    "M2": Row(
        "The whole system under random faults; watches lose, double, reorder and revert nothing",
        "every invariant in 100,000 runs",
        "`make simulate`: the first {size} seeds",
        simulated.seeds("M2", _SIMULATED, simulate),
        _SIMULATED,
        full=100_000,
        size=2_000,
        short=20,
        goes_on=True,
    ),
    "M3": Row(
        "The rules of registering, leaving and watching in TLA+",
        "exhaustive for 2 brokers, 2 connections, 3 epochs",
        "TLC on tests/interop/model (after `make setup-interop`), with planted faults",
        passing(["tests/interop/test_model.py"]),
        ("tests/interop/model",),
    ),
    "M5": Row(
        "Wire compatibility with RocketMQ",
        "the Java server's response to every recorded frame, but for listed deviations",
        "recordings of all request codes; `make interop` has real peers",
        passing(["tests/golden"]),
        (*_SERVER, "tests/golden"),
    ),
    "M6": Row(
        "Mutants of tables and wire that tests notice",
        "80 %",
        "`make mutation`: {size} of each",
        mutation,
        (*_SERVER, "tests/namesrv", "tests/remoting"),
        full=40,
        is_long=True,
    ),
    "S1": Row(
        "Brokers and clients come and go, servers and brokers fail, for eight hours",
        "nothing grows, the tables are right",
        "`make soak`, {size} min: 1,000 agents and 1,000 clients; growth at rest in the last 60 % of it",
        soaked,
        (*_ALL, "benchmarks/soak"),
        full=480,
        size=100,
        is_long=True,
        why="on a busy machine, agents that get no processor are evicted, which the log shows",
    ),
    "S2": Row(
        "Random faults of servers and their network, for an hour",
        "no pull fails, 99.99 % of them are fresh",
        "three servers, 20 clients, ten pulls a second each, {size} s; fresh means confirmed within a poll and 6 s",
        outages.chaos,
        (*_ALL, "benchmarks/scoreboard/outages.py"),
        full=3_600,
        size=60,
        short=10,
    ),
}
