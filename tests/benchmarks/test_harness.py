"""The harness: figures, rounds, tables, options, and the reports of servers, loads and the kernel."""

import os
import platform
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from benchmarks.__main__ import main
from benchmarks.harness.build import ROOT
from benchmarks.harness.conditions import Conditions, busy_ticks, others_share, processor
from benchmarks.harness.figures import (
    BenchError,
    Figure,
    Target,
    at_least,
    at_most,
    latest,
    percentile,
    ratios,
)
from benchmarks.harness.fleet import Fleet, agent, registered
from benchmarks.harness.probe import busy_seconds
from benchmarks.harness.rounds import Bench, Effort, Repeating
from benchmarks.harness.servers import daemon_ports, status_bytes
from benchmarks.harness.wire import Broker, Wire
from benchmarks.speed import agents, console_browser
from namesrv_remoting.bodies.register import RegisterBrokerBody, decode_body, decode_native_body
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig
from namesrv_remoting.frames import FrameReader
from namesrv_remoting.serializers import decode_frame
from namesrv_runtime import loops
from tests.support.fake_clock import GUARD_SECONDS
from tests.support.steps import finished

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the programs need epoll, the harness /proc")

LISTENING = '{"level":"info","event":"listening","addresses":["%s:41234"],"http":["127.0.0.1:80"],"ready":true}\n'


# -- figures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "verdicts"),
    [
        (at_least(0.5), ["missed", "met", "met"]),
        (at_most(0.5), ["met", "met", "missed"]),
        (None, ["", "", ""]),
    ],
)
def test_bound_itself_meets_target(target: Target | None, verdicts: list[str]) -> None:
    """At least and at most include the bound; without a target the verdict is empty."""
    assert [Figure("a", "what", "times", (value,), target).verdict for value in (0.49, 0.5, 0.51)] == verdicts


def test_ratios_compare_the_same_round() -> None:
    """Values of the same round are compared; a reference of 0 and missing rounds are errors."""
    assert ratios([100.0, 30.0], [200.0, 15.0]) == (0.5, 2.0)
    with pytest.raises(BenchError, match="reference 0 is not positive"):
        ratios([1.0], [0.0])
    with pytest.raises(ValueError, match="shorter"):
        ratios([1.0, 2.0], [1.0])


def test_percentile_is_a_measured_value() -> None:
    """The order of values does not matter; of few values it is the largest, and without values 0."""
    assert [percentile(range(100, 0, -1), 0.99), percentile([1, 3, 2], 0.99), percentile([], 0.5)] == [99, 3, 0]
    figure = latest("late", "late", "seconds", [5.0, 7.0], target=at_most(6))
    assert (figure.value, figure.verdict, figure.details) == (7.0, "missed", "p50 5.00 s, max 7.00 s, of 2")


# -- rounds and cores -------------------------------------------------------------------------------------------------


def test_every_other_round_goes_backwards() -> None:
    """Every other round runs the cases in reverse, and each case's values are in the order of the rounds."""
    called: list[str] = []

    def call(name: str) -> int:
        called.append(name)
        return len(called)

    bench = Bench(Effort(rounds=3, seconds=1))
    found = bench.in_turn("things", {name: partial(call, name) for name in ("a", "b")})

    assert called == ["a", "b", "b", "a", "a", "b"]
    assert found == {"a": [1, 4, 5], "b": [2, 3, 6]}


@pytest.mark.parametrize("error", [BenchError("no response"), ConnectionResetError("reset")])
def test_end_of_repeated_work_raises_the_error_of_a_run(error: Exception) -> None:
    """Work that stopped repeating has measured nothing since: its error is not lost in the thread."""
    failing = threading.Event()

    def work() -> None:
        failing.set()
        raise error

    with pytest.raises(type(error)), Repeating(work):
        failing.wait(GUARD_SECONDS)


# -- reports of servers, loads and the kernel -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "text", "found"),
    [
        # The ports are in one line, between other lines.
        (daemon_ports, LISTENING % "127.0.0.1", [41_234, 80]),
        (daemon_ports, LISTENING.replace('"127.0.0.1:80"', "") % "[::1]", [41_234]),
        (daemon_ports, '{"event":"warned","text":"not \\"listening\\" yet"}\n', ()),
        (daemon_ports, "a line of a traceback\n", ()),
        # The kernel's kB is 1,024 bytes.
        (status_bytes, "Name:\tpython\nVmHWM:\t   50000 kB\nVmRSS:\t   41664 kB\nThreads:\t1\n", 41_664 * 1024),
        # The model of the first processor, or the architecture.
        (processor, "processor\t: 0\nmodel name\t: Some  CPU @ 3GHz\nmodel name\t: x\n", "Some CPU @ 3GHz"),
        (processor, "processor\t: 0\n", platform.machine()),
        # Idle and iowait are not busy; guest time is part of user.
        (busy_ticks, "cpu  1 2 4 8 16 32 64 128 256 512\ncpu0 1 1 1 1 1 1 1 1 0 0\n", 1 + 2 + 4 + 32 + 64 + 128),
    ],
)
def test_reports_are_read(read: Callable[[str], object], text: str, found: object) -> None:
    """Reports in the format of servers and the kernel are parsed."""
    assert read(text) == found


def test_busy_time_without_ours_is_that_of_others() -> None:
    """10 s of two processors, of which 12 s were busy and 8 s ours: others had a fifth; the share is never negative."""
    assert others_share(Conditions(5.0, 100.0, 1.0, 0.0), Conditions(15.0, 112.0, 9.0, 0.0), processors=2) == 0.2
    # Ticks are coarse, and read at slightly different times.
    assert others_share(Conditions(0.0, 0.0, 0.0, 0.0), Conditions(1.0, 0.99, 1.0, 0.0), processors=2) == 0


_TERMINATED: Final = """if True:
    import asyncio, os, signal, sys
    from benchmarks.harness.servers import end_in_order
    from namesrv_runtime import loops

    def terminate():
        os.kill(os.getpid(), signal.SIGTERM)

    async def step():
        terminate()

    class Finalized:
        def __del__(self):
            terminate()

    async def main():
        never = asyncio.get_running_loop().create_future()
        if sys.argv[1] == "finalizer":
            Finalized()
        else:
            task = asyncio.create_task(step())
        await never

    end_in_order()
    try:
        loops.run(main)
    finally:
        print("in order")
"""


@pytest.mark.parametrize("where", ["task", "finalizer"])
def test_sigterm_ends_a_suite_in_order(where: str) -> None:
    """The signal may arrive in any task, or in a finalizer: all contexts end, and nothing else is printed."""
    command = [sys.executable, "-c", _TERMINATED, where]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=GUARD_SECONDS, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (143, "in order\n", "")


# -- programs and options ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "output"),
    [
        (["peers", "--list"], 0, "two_cores  "),
        (["--only", "nonsense"], 2, "unknown name 'nonsense'"),
        (["--write", "no-such-page.md"], 1, "no-such-page.md"),
        (["--quick", "--write", "docs/benchmarks.md"], 2, "leave out --quick"),
        (["soak", "--list"], 2, "unrecognized arguments: --list"),
        (["scoreboard", "--write", "docs/scoreboard.md"], 2, "unrecognized arguments: --write"),
        # The page would lose the figures of everything that is left out.
        (["--only", "memory", "--write", "docs/benchmarks.md"], 1, "would lose the figures of pulls,"),
        (["abuse", "--short", "--write", "docs/abuse.md"], 1, "would lose the figures of legal-100k,"),
        (["peers", "--against", "etcd", "--write", "docs/benchmarks-peers.md"], 2, "leave out --against"),
    ],
)
def test_options_are_checked_before_anything_is_measured(
    arguments: list[str],
    code: int,
    output: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command checks its options first."""
    monkeypatch.chdir(ROOT)
    at_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        found = main(arguments)
    except SystemExit as ended:
        found = int(ended.code or 0)
    finally:
        signal.signal(signal.SIGTERM, at_sigterm)

    printed = capsys.readouterr()
    assert (found, output in printed.out + printed.err) == (code, True), printed


def test_browser_that_does_not_start_cannot_be_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other subjects of `make bench` keep their figures."""
    for name in ("chromium", "chromedriver"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    with pytest.raises(BenchError, match="browser"), console_browser.opened(Bench()):
        pass


# -- what is sent -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["json", "compressed", "native"])
def test_each_form_of_a_registration_has_the_same_content(form: str) -> None:
    """One registration in three encodings; a changed one has other queues and a newer DataVersion."""
    broker = Broker("b", "127.0.0.1:10911", [TopicConfig("T0", 8, 8), TopicConfig("T1", 8, 8)]).changed(4)
    (frame,) = FrameReader().receive_data(getattr(broker, f"{form}_frame")())
    command, is_compressed = decode_frame(frame), form == "compressed"
    body: RegisterBrokerBody = (
        finished(decode_native_body(command.body, compressed=False))
        if form == "native"
        else finished(decode_body(command.body, command.version, compressed=is_compressed))
    )

    topics = [(topic.topic_name, topic.read_queue_nums, topic.write_queue_nums) for topic in body.topic_configs]
    assert topics == [("T0", 4, 8), ("T1", 4, 8)]
    assert body.data_version == DataVersion(2)


# -- agents -----------------------------------------------------------------------------------------------------------


def test_agent_has_counted_a_change_that_a_client_knows() -> None:
    """A server may notify a client before the agent has the response, from which it counts its registrations."""

    async def counted(fleet: Fleet, wire: Wire) -> list[int]:
        async with agent(0, fleet.addresses, ["a", "b"]) as changing:
            await registered([changing], 1)
            counts = []
            for number in range(50):
                await agents.reached([changing], [wire], f"new-{number}")
                counts += [state.counts.registrations for state in changing.servers.values()]
            return counts

    with Fleet(Bench(), count=1) as fleet, Wire(fleet.servers[0]) as wire:
        counts = loops.run(partial(counted, fleet, wire))

    # The first one is that of the start.
    assert counts == list(range(2, 52))


# -- the probe --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("took", "waited", "computed", "busy"),
    [(0.03, 0.0, 0.02, 0.02), (0.08, 0.075, 0.07, 0.005), (0.01, 0.009, 0.0005, 0.0005)],
    ids=["the server had no processor", "the probe had none", "both had none"],
)
def test_probe_counts_no_work_during_its_own_waits(took: float, waited: float, computed: float, busy: float) -> None:
    """Work between two responses: processor time, but not what the server computes while the probe has no processor."""
    assert busy_seconds(took, waited, computed) == pytest.approx(busy)
