"""A memory cgroup for one process: the kernel kills a process that exceeds the limit, as in a container.

With cgroup v1 the group is a child of our own group. With v2 it is a sibling, since a group that has processes cannot
have children with limits there. Both need root and a writable cgroup file system.
"""

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from benchmarks.harness.figures import BenchError

ROOT: Final = Path("/sys/fs/cgroup")
_PATIENCE_SECONDS: Final = 5.0


class NoMemoryGroupError(BenchError):
    """This machine has no memory cgroups, or this user may not create one."""


@dataclass(frozen=True, slots=True)
class _Files:
    """Names of the files of a group, which differ between cgroup v1 and v2."""

    limit: str
    peak: str
    # has a line with the number of killed processes
    kills: str


_V1: Final = _Files("memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control")
_V2: Final = _Files("memory.max", "memory.peak", "memory.events")


class MemoryGroup:
    """A group until the block ends; its processes must have ended by then."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        parent, self._files = place(Path("/proc/self/cgroup").read_text(encoding="ascii"))
        self._path = ROOT / parent / f"namesrv-{os.getpid()}"

    def __enter__(self) -> Self:
        try:
            self._path.mkdir()
            self._file(self._files.limit).write_text(str(self._limit_bytes), encoding="ascii")
        except OSError as error:
            with contextlib.suppress(OSError):
                self._path.rmdir()
            raise NoMemoryGroupError(f"no memory cgroup: {error}") from error
        return self

    def __exit__(self, *_: object) -> None:
        # The kernel removes a process from the group only some time after its exit.
        gives_up_at = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < gives_up_at:
            with contextlib.suppress(OSError):
                self._path.rmdir()
                return
            time.sleep(0.05)

    @property
    def prefix(self) -> tuple[str, ...]:
        """A command prefix that runs the command in the group from its first page on."""
        return ("sh", "-c", 'echo $$ >"$0" && exec "$@"', str(self._file("cgroup.procs")))

    @property
    def peak_bytes(self) -> int:
        """Peak memory of the processes, including that of their sockets."""
        return int(self._file(self._files.peak).read_text(encoding="ascii"))

    @property
    def kills(self) -> int:
        """The number of processes that were killed for exceeding the limit."""
        lines = self._file(self._files.kills).read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))

    def _file(self, name: str) -> Path:
        return self._path / name


def place(cgroups: str) -> tuple[Path, _Files]:
    """The folder in which a group may be created, given the text of /proc/self/cgroup.

    Raises:
        NoMemoryGroupError: this machine has no memory cgroups.
    """
    v2: Path | None = None
    for line in cgroups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            return Path("memory") / path.lstrip("/"), _V1
        if not controllers:
            v2 = Path(path.lstrip("/")).parent
    if v2 is None:
        raise NoMemoryGroupError("no memory cgroup: this machine has none")
    return v2, _V2
