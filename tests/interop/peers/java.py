"""Runs a Java program and collects its output."""

import contextlib
import re
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Self

from tests.interop.peers.place import class_path
from tests.interop.peers.waiting import GUARD_SECONDS
from tests.support.heard import Heard

# a broker of 5.3 takes ten to shut down when it has the machine for itself
_END_SECONDS: Final = 120.0

# What Apache's start scripts open to RocketMQ on Java 9 and newer, and what makes a JVM start quickly.
_FLAGS: Final = (
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
)


def java_command(
    classes: str, main: str, *args: str, home: Path, heap_megabytes: int = 256, flags: Sequence[str] = ()
) -> list[str]:
    """The command that runs a main class; everything that it writes by itself lands in `home`."""
    home.mkdir(parents=True, exist_ok=True)
    memory = (f"-Xms{min(heap_megabytes, 128)}m", f"-Xmx{heap_megabytes}m")
    places = (f"-Duser.home={home}", f"-Djava.io.tmpdir={home}")
    return ["java", *_FLAGS, *memory, *places, *flags, "-cp", classes, main, *args]


class JavaProcess:
    """A Java program, as a context manager; at its end the process is gone, whatever happens.

    Its standard error goes to the file `printed.log` in its home.
    """

    def __init__(self, command: Sequence[str], *, home: Path, shown: str) -> None:
        self.home = home
        self._shown = shown
        with (home / "printed.log").open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
                cwd=home,
            )
        self._heard = Heard(self._process.stdout, str)
        # every line of its output so far
        self.lines = self._heard.all

    @classmethod
    def of_peer(cls, peer: str, main: str, *args: str, home: Path, shown: str) -> Self:
        """Run a main class of a fetched peer."""
        return cls(java_command(class_path(peer), main, *args, home=home), home=home, shown=shown)

    def wait_until(self, condition: Callable[[], object], *, within: float = GUARD_SECONDS) -> None:
        """Return as soon as a condition on its output is so.

        Raises:
            AssertionError: not in that time, or the process ended without.
        """
        is_so = self._heard.wait_until(condition, within)
        assert is_so, f"{self} after {within:g} s: {self.lines[-20:]} {self.printed()[-2000:]}"

    def wait_for(self, pattern: str, *, within: float = GUARD_SECONDS) -> str:
        """The first line that matches somewhere, as soon as it is said."""
        self.wait_until(lambda: self.said(pattern), within=within)
        return self.said(pattern)[0]

    def said(self, pattern: str) -> list[str]:
        """The lines so far that match somewhere."""
        return [line for line in self.lines if re.search(pattern, line)]

    def printed(self) -> str:
        """What it wrote to its standard error."""
        return (self.home / "printed.log").read_text(encoding="utf-8", errors="replace")

    def tell(self, line: str) -> None:
        """Write a line to its input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    # -- the process --------------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def pause(self) -> None:
        """Stop it as a machine that hangs would: its connections stay open (SIGSTOP)."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it run again (SIGCONT)."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a crash would (SIGKILL)."""
        self._process.kill()
        self._wait()

    def stop(self) -> int:
        """Tell it to end, as an operator does (SIGTERM); its exit code."""
        self._process.terminate()
        return self._wait()

    def _wait(self) -> int:
        code = self._process.wait(_END_SECONDS)
        self._heard.to_the_end(_END_SECONDS)
        return code

    def __enter__(self) -> Self:
        """Itself; the process runs already."""
        return self

    def __exit__(self, *raised: object) -> None:
        """End the process if it still runs."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def __repr__(self) -> str:
        state = "running" if self.is_running else f"ended with {self._process.returncode}"
        return f"<{type(self).__name__} [{self._shown} | {self.pid} | {state} | {len(self.lines)} lines]>"
