"""The demo shows the failures, ends by itself, and leaves no process behind."""

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.screen import InterruptedStoryError, Screen
from tests.support.fake_clock import GUARD_SECONDS
from tests.support.peer import until
from tests.support.printing_process import PrintingProcess

ROOT = Path(__file__).parents[2]
# the demo takes 15 s, longer on a busy machine
_DEMO_SECONDS = 150


class Demo(PrintingProcess):
    """The demo at three times its default speed."""

    def __init__(self, directory: Path, *flags: str, **environ: str) -> None:
        super().__init__(
            *(sys.executable, "-m", "demo", "--factor", "60", "--directory", str(directory), *flags),
            PYTHONPATH=str(ROOT),
            **environ,
        )

    def finished(self) -> int:
        """Exit code of the demo, once it has ended by itself."""
        self._process.wait(_DEMO_SECONDS)
        return self.wait()

    def __exit__(self, *raised: object) -> None:
        """End a running demo gracefully, so that its console ends as well."""
        if self._process.poll() is None:
            self.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_DEMO_SECONDS)
        super().__exit__(*raised)

    def children(self) -> set[str]:
        """Running processes started by the demo's main thread."""
        return set(Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split())


@pytest.fixture
def demo(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Demo]:
    """The demo with these flags; its children must be gone at the end of the test."""
    # a relative path, like the default
    with Demo(Path(os.path.relpath(tmp_path)), *request.param) as running:
        running.wait_for("console .* shows the cluster")
        children = running.children()
        yield running
    until(lambda: not [pid for pid in children if Path("/proc", pid).exists()])


@pytest.mark.parametrize("demo", [("--no-report", "--scenes", "kill", "pause", "freeze", "drain")], indirect=True)
def test_short_demo(demo: Demo, tmp_path: Path) -> None:
    """Three brokers are lost in three ways; servers and clients notice within the announced time."""
    assert demo.finished() == 0, demo.lines

    text = "\n".join(demo.lines)
    assert "Time runs 60 times faster than by default" in text
    assert "\x1b" not in text
    assert demo.lines_matching(r"console    shows the cluster: http://127\.0\.0\.1:\d+/$")
    assert demo.lines_matching(r"^ +\d+\.\d\d s  ns1        drops broker-b, after .*: its connection was closed$")
    assert demo.lines_matching(r"^ +\d+\.\d\d s  ns2        drops broker-c, after .*: silent for \d+\.\d\d s$")
    assert demo.lines_matching(r"^ +\d+\.\d\d s  ns1        drops broker-a, after .*: it unregistered$")
    for name in ("a", "b", "c"):
        for client in ("producer", "consumer"):
            assert demo.lines_matching(rf"{client}   no longer sees broker-{name}, after"), (client, name)
    # paused for less than its expiry
    assert demo.lines_matching("thaw broker-b: no server has evicted it")
    assert demo.lines_matching("drops broker-b.*silent") == []
    rows = [re.findall(r"(\d+\.\d\d) s", line) for line in demo.lines_matching(r"^  (kill|freeze|drain) broker-. ")]
    assert [len(row) for row in rows] == [4, 4, 4]
    # at most expiry, scan and poll: (120 + 10 + 30) s / 60; the rest is for a busy machine
    assert all(float(seconds) < 160 / 60 + 10 for row in rows[:2] for seconds in row)
    # The demo does not show the events of its own end.
    assert re.fullmatch(r"  [1-9]\d+ messages sent, .* 0 could not be sent\.", demo.lines[-1])
    logs = [*tmp_path.glob("ns[12]/heartbeats/dt=*/hour=*/*.jsonl*")]
    assert {log.relative_to(tmp_path).parts[0] for log in logs} == {"ns1", "ns2"}


@pytest.mark.parametrize("demo", [("--no-report",)], indirect=True)
def test_interrupted_demo_leaves_nothing(demo: Demo) -> None:
    """A closed terminal ends the demo, also while a broker is frozen; Ctrl-C and SIGTERM have the same handler."""
    demo.wait_for("thaw broker-b")
    # the console
    assert len(demo.children()) == 1
    demo.wait_for("freeze broker-c")
    demo.send_signal(signal.SIGHUP)

    assert demo.finished() == 130, demo.lines
    assert demo.lines[-1] == "interrupted; all processes are stopped"
    assert demo.lines_matching("Traceback") == []


class _InterruptingOutput(io.StringIO):
    """Output during which a signal arrives: the handler runs while the screen holds its lock."""

    def __init__(self) -> None:
        super().__init__()
        self.screen = Screen(self)

    def flush(self) -> None:
        self.screen.interrupt()


def test_interrupt_waits_for_the_end_of_a_line() -> None:
    """A signal neither ends a line nor leaves the lock taken; the next wait raises."""
    output = _InterruptingOutput()
    output.screen.note("one")
    writer = threading.Thread(target=output.screen.note, args=("two",), daemon=True)
    writer.start()
    writer.join(GUARD_SECONDS)

    assert output.getvalue() == "one\ntwo\n"
    with pytest.raises(InterruptedStoryError):
        output.screen.pause(GUARD_SECONDS)
    with pytest.raises(InterruptedStoryError):
        output.screen.until("true", lambda: True)


def test_demo_ends_with_the_report(tmp_path: Path) -> None:
    """The report needs no Java."""
    bin_directory = tmp_path / "bin"
    bin_directory.mkdir()
    with Demo(tmp_path, "--scenes", PATH=str(bin_directory)) as demo:
        assert demo.finished() == 0, demo.lines
    page = tmp_path / "report" / "report.html"
    assert demo.lines[-1].strip() == f"The report: {page.as_uri()}"
    assert page.exists()
