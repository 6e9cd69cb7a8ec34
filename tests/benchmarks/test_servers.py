"""Facts read from the output of servers, from /proc and from the kernel."""

import os
import platform
import subprocess
import sys
from collections.abc import Callable

import pytest

from benchmarks.conditions import Clocks, busy_ticks, others_share, processor
from benchmarks.figures import BenchError
from benchmarks.servers import Server, daemon_port, limit_port, resident_bytes

LISTENING = '{"level":"info","event":"listening","addresses":["%s:41234"],"ready":true}\n'


@pytest.mark.parametrize(
    ("read", "text", "found"),
    [
        # the port is in one line; others come before and after it
        *((daemon_port, LISTENING % host, 41_234) for host in ("127.0.0.1", "[::1]")),
        (daemon_port, '{"event":"warned","text":"not \\"listening\\" yet"}\n', None),
        (daemon_port, "a line of a traceback\n", None),
        (limit_port, '{"port":38111}\n', 38_111),
        # the kernel says kB and means 1,024 bytes
        (resident_bytes, "Name:\tpython\nVmHWM:\t   50000 kB\nVmRSS:\t   41664 kB\nThreads:\t1\n", 41_664 * 1024),
        # the first processor named is the processor, however it is spaced; else the architecture is something
        (processor, "processor\t: 0\nmodel name\t: Some  CPU @ 3GHz\nmodel name\t: x\n", "Some CPU @ 3GHz"),
        (processor, "processor\t: 0\n", platform.machine()),
        # waiting is not busy, neither idle nor iowait; guests are in user already
        (busy_ticks, "cpu  1 2 4 8 16 32 64 128 256 512\ncpu0 1 1 1 1 1 1 1 1 0 0\n", 1 + 2 + 4 + 32 + 64 + 128),
    ],
)
def test_what_servers_and_the_kernel_say(read: Callable[[str], object], text: str, found: object) -> None:
    """Read as it is meant."""
    assert found == read(text)


def test_a_server_that_has_ended_has_no_memory() -> None:
    """The status of a zombie lacks the line, and that is no 0."""
    with pytest.raises(BenchError, match="the server has ended"):
        resident_bytes("Name:\tpython\nState:\tZ (zombie)\n")


def test_what_is_neither_idle_nor_ours_is_others() -> None:
    """10 s of two processors, 12 s of them busy, 8 s with our work: others had a fifth; never less than none."""
    assert others_share(Clocks(5.0, 100.0, 1.0), Clocks(15.0, 112.0, 9.0), processors=2) == 0.2
    # ticks are coarse, and read a moment apart
    assert others_share(Clocks(0.0, 0.0, 0.0), Clocks(1.0, 0.99, 1.0), processors=2) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="Linux numbers its clocks so")
def test_the_computing_time_of_another_process_is_seen() -> None:
    """A process that has done something has computed, and less than a minute by now."""
    command = [sys.executable, "-c", "print(sum(range(10**5)), flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        computed = Server(process.pid, 0, 0.0).cpu_seconds()
        process.communicate("\n")

    assert 0 < computed < 60
    assert process.pid != os.getpid()
