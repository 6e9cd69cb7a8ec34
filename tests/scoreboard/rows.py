"""The rows of the scoreboard, by their ids."""

from collections.abc import Mapping
from typing import Any, Final

from benchmarks.figures import Figure, Target
from tests.scoreboard import crowds, detection, disks, lossy, outages, records, restarts, simulated
from tests.scoreboard.programs import attack, bench, passing, soak, together
from tests.scoreboard.row import Row, none_of

# heading -> ids
SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "Load and connections": ("L1", "L2", "L3", "L4"),
    "Hostile input": tuple(f"H{number}" for number in range(1, 7)),
    "Detection and staleness": tuple(f"D{number}" for number in range(1, 7)),
    "Faults": tuple(f"F{number}" for number in range(1, 19)),
    "Correctness": tuple(f"M{number}" for number in range(1, 8)),
    "Soak": ("S1", "S2"),
}


def _beside_an_attack(said: dict[str, Any]) -> list[Figure]:
    """What `make abuse` says of those who behave."""
    late = said["p99_seconds"] / said["p99_quiet_seconds"]
    behind = f"{1000 * said['p99_seconds']:.2f} ms / {1000 * said['p99_quiet_seconds']:.2f} ms"
    return [
        Figure("p99", "p99 of a puller during it / before and after", "times", (late,), Target("<=", 2), behind),
        Figure("peak", "peak memory", "megabytes", (1.048576 * said["peak_mib"],), Target("<=", 67.1)),
    ]


def _in_a_group(said: dict[str, Any]) -> list[Figure]:
    """What `make abuse` says of memory, and of who was killed for it."""
    used = said["peak_mib"] - said["tables_mib"]
    group = f"{said['group_peak_mib']:,.0f} MiB of its cgroup" if said["limit_mib"] else ""
    return [
        Figure("peak", "peak memory beside the tables", "megabytes", (1.048576 * used,), Target("<=", 536.9), group),
        none_of("kills", "killed for memory", said["kills"]),
    ]


def _each(name: str, said: dict[str, Any], *, peers: int, most: int) -> Figure:
    what = "peak memory of each peer"
    return Figure(name, what, "kibibytes", (1024 * said["peak_mib"] / peers,), Target("<=", most))


ROWS: Final[Mapping[str, Row]] = {
    "L1": Row(
        "Route questions a second of one process",
        "0.6 of what a server in C that looks nothing up answers on the same core",
        "`make bench`, {size} rounds: 200 connections, 1,000 topics, answers of 1.9 KB",
        bench("pulls", {"pulls.json.rate": None, "pulls.json.p99": None, "pulls.native.rate": None}),
        5,
        is_timed=True,
    ),
    "L2": Row(
        "Memory of an idle connection",
        "6 KiB",
        "`make bench`: 10,000 connections (of 15,000) that have asked for one route",
        bench("connections", {"connections.idle": Target("<=", 6)}),
        5,
    ),
    "L3": Row(
        "Memory of 40,000 topics, each on 8 brokers, 32 brokers in all",
        "400 MB",
        "`make bench`: registered, then each pulled once in JSON",
        bench("memory", {"memory.shared.registered": Target("<=", 400), "memory.shared.pulled": Target("<=", 400)}),
        5,
    ),
    "L4": Row(
        "Longest stall while a broker with 10,000 topics registers ten times a second",
        "20 ms",
        "`make bench`, {size} rounds: one connection that always waits for one answer",
        bench("registration", {"registration.fields.stall": None, "registration.version.stall": None}),
        5,
        is_timed=True,
    ),
    "H1": Row(
        "Malformed frames, headers and bodies",
        "none crashes or hangs a server, or leaves anything behind",
        "`make fuzz`, {size} examples (of 50 million): mutated frames and streams, to decoders and to a whole server",
        passing(["tests/fuzz"], ["-o", "faulthandler_timeout=0"], variable="NAMESRV_FUZZ_EXAMPLES"),
        20_000,
    ),
    "H2": Row(
        "2,000 peers that send a byte a second",
        "p99 of others at most twice what it was, at most 64 MiB",
        "`make abuse`, from 200 addresses",
        attack("slowloris", _beside_an_attack),
        1,
        is_timed=True,
    ),
    "H3": Row(
        "The worst frames from 1,000 connections, over and over, in a memory cgroup of 768 MiB",
        "512 MiB beside what the tables hold, never killed",
        "`make abuse`: giant lengths, nested arrays, empty maps, zlib bombs, a million ext fields",
        attack("storm", _in_a_group),
        1,
        why="the answers to a thousand peers' frames of the worst kind keep the loop for 5 to 16 ms of computing at a "
        "time; twice as long on a machine that computes half as fast",
    ),
    "H4": Row(
        "Memory of a peer before its first whole frame",
        "64 KiB each",
        "`make abuse`: 200 peers with 60 KB of a header each",
        attack("partial-headers", lambda said: [_each("partial", said, peers=200, most=64)]),
        1,
    ),
    "H5": Row(
        "1,000 watchers who never read",
        "cut off before they take much memory; p99 of others at most three times what it was",
        "`make abuse`: 50 watches of 100 topics each, which change all the time",
        attack("watches-unread", _in_a_group),
        1,
        is_timed=True,
    ),
    "H6": Row(
        "No descriptor left",
        "open connections are served with at most 20 % of a core, newcomers within 5 s after the others left",
        "a limit of 20 more than are open, 60 connections come, {size} s",
        crowds.no_descriptors,
        5,
        short=1,
    ),
    "D1": Row(
        "A broker's connection ends: it is in no route",
        "p99 within 100 ms",
        "{size} deaths, one after the other, one client that asks all the time",
        detection.closed_connections,
        1_000,
        short=50,
        is_timed=True,
    ),
    "D2": Row(
        "The same: a client that watches is told",
        "p99 within 250 ms",
        "{size} deaths, one after the other",
        detection.told_watchers,
        1_000,
        short=50,
        is_timed=True,
    ),
    "D3": Row(
        "A broker falls silent over an open connection: it is in no route",
        "always within expiry + scan + 0.2 s",
        "{size} brokers, an expiry of 10 s, a scan every second",
        detection.silent_deaths,
        200,
        is_timed=True,
    ),
    "D4": Row(
        "The network between a client and its server falls silent: it notices, and has another server",
        "always within 5 s",
        "{size} clients that watch, through one proxy that stops forwarding",
        detection.half_open_connections,
        20,
        is_timed=True,
    ),
    "D5": Row(
        "The staleness report against the truth of whoever injected the faults",
        "every percentile within one heartbeat or 1 %",
        "two servers, brokers that crash, freeze, pause, leave and are cut off, clients; both engines",
        passing(["tests/spark_jobs/test_truth.py"]),
        1,
    ),
    "D6": Row(
        "Live brokers evicted while servers stand still now and then",
        "0",
        "simulation, {size} times an hour (of 24), three servers, five brokers, a server stopped for 30 s every "
        "10 min; times in it are a tenth",
        simulated.stopped_servers,
        24,
        short=1,
    ),
    "F1": Row(
        "A server with 10,000 topics is killed and starts again",
        "listens within 1 s, has answered every topic within 1.5 s",
        "{size} times; its ten brokers come back by themselves; until they are there it sends clients away, who keep "
        "their routes",
        restarts.kills,
        5,
        is_timed=True,
    ),
    "F2": Row(
        "A snapshot that is lost, torn or damaged",
        "never believed",
        "every bit of a small one flipped, and cut off at every length; {size} writers killed",
        restarts.damaged_snapshots,
        1_000,
        short=20,
    ),
    "F3": Row(
        "Confirmed changes of the KV configuration that a killed server has lost",
        "0",
        "`make durability`: {size} servers killed, on a disk that fails now and then; some dozens of changes each",
        passing(["tests/journeys/test_disk.py"], ["-k", "confirmed"], variable="NAMESRV_KILLS"),
        30,
    ),
    "F4": Row(
        "A server stands still for 5 min and goes on",
        "no live broker evicted, tables right again",
        "simulation, {size} stops; times in it are a tenth",
        simulated.long_stops,
        200,
        short=5,
    ),
    "F5": Row(
        "A server's wall clock jumps by an hour, a day, to 1970 and back, and 100 times in 10 s",
        "no live broker evicted, no dead one kept",
        "simulation, {size} runs of all these jumps",
        simulated.wrong_clocks,
        100,
        short=2,
    ),
    "F6": Row(
        "One of three servers is cut off",
        "no pull fails; the isolated server has dead routes no longer than expiry + scan + 0.2 s",
        "20 clients that pull ten times a second, 4 brokers, {size} s (of 60); an expiry of 10 s, a scan every second",
        outages.one_cut_off,
        30,
        short=5,
    ),
    "F7": Row(
        "Two of three servers are dead",
        "no pull fails, ages are reported",
        "the same, {size} s (of 10 min)",
        outages.two_dead,
        30,
        short=3,
    ),
    "F8": Row(
        "All servers are dead, and an application starts",
        "it has routes from disk, with their age, and fresh ones within 5 s after a server is back",
        "{size} times, dead for 5 s (of 10 min)",
        outages.all_dead,
        3,
        is_timed=True,
    ),
    "F9": Row(
        "Rolling restart of three servers",
        "no failed pull, no incomplete answer, at most 20 % of the clients connect in one second",
        "`make bench`: 200 clients that pull ten times a second",
        bench("rolling", {"rolling.failed": None, "rolling.incomplete": None, "rolling.moved": None}),
        5,
        is_timed=True,
    ),
    "F10": Row(
        "Rolling upgrade of three servers from an older version, and back",
        "as for a restart",
        "the same, with servers of a commit before quotas, audit trail and mass silence on the one side",
        restarts.upgrades,
        1,
        is_timed=True,
    ),
    "F11": Row(
        "Everybody comes back at once after a restart",
        "all are served within 10 s",
        "`make bench`, {size} rounds: 5,000 clients, patient ones and naive ones; 2,000 brokers",
        bench("herd", {"herd.polite": None, "herd.naive": None, "herd.stall": None}),
        5,
        is_timed=True,
    ),
    "F12": Row(
        "Many brokers expire in one scan",
        "no stall over 20 ms",
        "{size} brokers",
        crowds.mass_expiry,
        5_000,
        is_timed=True,
        why="measured while the machine computed at two fifths of its usual speed",
    ),
    "F13": Row(
        "A broker registers and dies, over and over",
        "right in the end, nothing left behind",
        "{size} times (as in a minute of ten a second), as fast as it goes",
        crowds.flapping,
        600,
        short=100,
    ),
    "F14": Row(
        "Stale removals that meet a newer registration",
        "0",
        "simulation, {size} schedules of brokers that leave, die, lose their connections and come back (of a million)",
        simulated.removals,
        2_000,
        short=20,
    ),
    "F15": Row(
        "A disk that is full, read-only, broken or stuck",
        "serving goes on, the state is visible, all is written once the disk is well",
        "snapshot, KV configuration, heartbeat log and audit trail, each fault; killed servers",
        passing(["tests/journeys/test_disk.py"]),
        1,
    ),
    "F16": Row(
        "Writes of the heartbeat log are stuck",
        "p99 of pulls at most 1.2 times what it is otherwise",
        "{size} rounds, in turn; 200 connections, 1,000 topics",
        disks.stuck_log,
        5,
        is_timed=True,
    ),
    "F17": Row(
        "A network that loses a tenth of all packets and delays the others by 100 to 300 ms",
        "no live broker evicted, 99.99 % of pulls fresh",
        "two hosts (network namespaces, iptables) and a proxy; 4 brokers with a heartbeat every 3 s and an expiry of "
        "12 s, 10 clients that pull ten times a second; {size} s (of an hour)",
        lossy.packet_loss,
        60,
    ),
    "F18": Row(
        "TLS handshakes beside pulls, and another certificate while running",
        "290 of 300 handshakes a second, p99 of pulls at most twice what it is without; no connection lost by a new "
        "certificate",
        "`make bench`, {size} rounds, and the journey of a certificate that is replaced",
        together(
            bench("tls", {"tls.handshakes.rate": Target(">=", 290), "tls.handshakes.p99": None}),
            passing(["tests/journeys/test_tls.py"], ["-k", "certificate_is_replaced"]),
        ),
        5,
        is_timed=True,
        why="handshakes are computed by threads that give way to the loop, but Linux lets them end their slice first; "
        "SCHED_IDLE would bring p99 to 1.6 times, and no handshake while anybody else computes. The rate is the "
        "clients', who have what the load leaves them of a core that computed at two fifths of its usual speed",
    ),
    "M1": Row(
        "A model of the tables against the tables",
        "they agree after every step",
        "Hypothesis: 200 histories of 50 steps (of 20,000)",
        passing(["tests/namesrv/routeinfo/test_state_machine.py"], ["--hypothesis-profile=full"]),
        1,
    ),
    "M2": Row(
        "The whole system under random faults",
        "every invariant holds",
        "`make simulate`: the first {size} seeds (of 100,000)",
        simulated.all_seeds,
        2_000,
        short=20,
    ),
    "M3": Row(
        "The rules of registering, leaving and watching in TLA+",
        "exhaustive for 2 brokers, 2 connections, 3 epochs, no invariant broken",
        "TLC on tests/interop/model (after `make setup-interop`), and that it finds planted faults",
        passing(["tests/interop/test_model.py"]),
        1,
    ),
    "M4": Row(
        "Watches lose, double and reorder nothing, and never go back",
        "no violation",
        "the recorded histories of the first {size} seeds of `make simulate`",
        simulated.watches,
        2_000,
        short=20,
    ),
    "M5": Row(
        "Wire compatibility with RocketMQ",
        "every recorded frame is answered as by the Java server, but for listed deviations",
        "the golden recordings of all request codes; real brokers, clients and tools run in `make interop`",
        passing(["tests/golden"]),
        1,
    ),
    "M6": Row(
        "Small changes of tables and wire that their tests notice",
        "80 %",
        "`make mutation`: {size} changes of each",
        records.mutation,
        40,
        is_long=True,
    ),
    "M7": Row(
        "Every bug that was ever found has a test that keeps it from coming back",
        "all",
        "each row of docs/bugs.md names its tests, and they are there",
        records.track_record,
        1,
        short=1,
    ),
    "S1": Row(
        "Brokers and clients come and go, and servers and brokers fail",
        "nothing grows, the tables are the truth",
        "`make soak`, {size} min (of 8 h): 1,000 agents and 1,000 clients",
        soak,
        60,
        is_long=True,
        why="what glibc's heap keeps between blocks in use; free memory is given back every 15 s",
    ),
    "S2": Row(
        "Random faults of servers and of the network between them and their clients",
        "no pull fails, 99.99 % of them are fresh",
        "three servers, one fault at a time, 20 clients that pull ten times a second; {size} s (of an hour); a fresh "
        "route was confirmed within a poll and 6 s",
        outages.chaos,
        60,
        short=10,
    ),
}
