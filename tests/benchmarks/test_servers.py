"""Facts read from a server's output and from /proc."""

import os
import subprocess
import sys

import pytest

from benchmarks.figures import BenchError
from benchmarks.servers import Server, daemon_port, limit_port, resident_bytes

LISTENING = '{"level":"info","event":"listening","addresses":["127.0.0.1:41234"],"ready":true}\n'


def test_resident_memory_is_in_kibibytes() -> None:
    """The kernel says kB and means 1,024 bytes; the status of a zombie lacks the line, and that is no 0."""
    assert 41_664 * 1024 == resident_bytes("Name:\tpython\nVmHWM:\t   50000 kB\nVmRSS:\t   41664 kB\nThreads:\t1\n")
    with pytest.raises(BenchError, match="the server has ended"):
        resident_bytes("Name:\tpython\nState:\tZ (zombie)\n")


def test_the_port_is_in_the_line_that_says_listening() -> None:
    """Other lines come before and after it; the limit server prints nothing else."""
    assert [41_234, 41_234] == [daemon_port(LISTENING.replace("127.0.0.1", host)) for host in ("127.0.0.1", "[::1]")]
    lines = ('{"event":"stopped"}', '{"event":"warned","text":"not \\"listening\\" yet"}', "a line of a traceback")
    assert [None, None, None] == [daemon_port(f"{line}\n") for line in lines]
    assert limit_port('{"port":38111}\n') == 38_111


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
