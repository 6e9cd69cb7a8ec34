"""Runs a Java program and collects its output."""

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.interop.peers.place import INTEROP, class_path
from tests.support.printing_process import PatternProcess

# The modules that Apache's start scripts open on Java 9 and newer, and flags for a quick start of the JVM.
_FLAGS: Final = (
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
)
# Held while a JVM starts: JVMs that start at the same moment slow each other down.
BOOT_SECONDS: Final = 180.0


class JavaProcess(PatternProcess):
    """A Java process that runs a peer's main class, or one of ours with the peer's classes; its files are in `home`."""

    # A broker of 5.3 takes ten seconds to shut down on an idle machine.
    end_seconds = 120.0

    def __init__(
        self, home: Path, peer: str, main: str, *args: str, heap_megabytes: int = 256, flags: Sequence[str] = ()
    ) -> None:
        memory = (f"-Xms{min(heap_megabytes, 128)}m", f"-Xmx{heap_megabytes}m")
        places = (f"-Duser.home={home}", f"-Djava.io.tmpdir={home}", f"-Drocketmq.home.dir={home}")
        classes = f"{INTEROP / 'java' / 'classes'}:{class_path(peer)}"
        super().__init__(["java", *_FLAGS, *memory, *places, *flags, "-cp", classes, main, *args], home=home)
        self.home = home
        self._shown = f"{peer} {main}"

    def pause(self) -> None:
        """Stop the process (SIGSTOP) as a hanging machine would: its connections stay open."""
        self.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the process (SIGCONT)."""
        self.send_signal(signal.SIGCONT)

    def __repr__(self) -> str:
        state = "running" if self.is_running else "ended"
        return f"<{type(self).__name__} [{self._shown} | {self.home} | {state} | {len(self.lines)} lines]>"
