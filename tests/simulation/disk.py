"""A machine's disk: real files in a directory, of which a power cut keeps only synced contents.

During a run, calls of `os` are intercepted: they record open descriptors and synced contents, and fail on demand.
"""

import errno
import os
import random
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.world import World


class ProcessDied(BaseException):
    """The process was killed within this call and does not continue."""


class Disk:
    """The files of a machine."""

    def __init__(self, directory: Path, chosen: random.Random) -> None:
        self.directory = directory
        self._chosen = chosen
        # Open descriptors of the process.
        self.open: set[int] = set()
        # inode -> synced contents; directory -> synced entries, name -> inode
        self._contents: dict[int, bytes] = {}
        self._names: dict[str, dict[str, int]] = {}
        # errno of writes during a fault, or 0.
        self.error = 0
        # Time of the last failed call.
        self.failed_at = float("-inf")
        # Number of changing calls until a power cut, or None.
        self.calls_left: int | None = None
        self.on_torn: Callable[[], None] = lambda: None
        # Additional seconds of writes in threads during a fault.
        self.slow_seconds = 0.0
        # End of the last slow write.
        self.slow_until = float("-inf")
        directory.mkdir(parents=True)

    def is_impaired(self, now: float) -> bool:
        """Return true if the disk fails or is slow, or a write that began while it was slow has not ended."""
        return bool(self.error or self.slow_seconds) or now < self.slow_until

    def changes(self) -> None:
        """Count a call that changes the disk, and cut the power if its time has come."""
        if self.calls_left is not None:
            self.calls_left -= 1
            if self.calls_left < 0:
                self.calls_left = None
                self.on_torn()
                raise ProcessDied

    def check(self, now: float) -> None:
        if self.error:
            self.failed_at = now
            raise OSError(self.error, os.strerror(self.error))

    def synced(self, descriptor: int) -> None:
        """Record the contents of a descriptor as synced."""
        status, path = os.fstat(descriptor), Path(f"/proc/self/fd/{descriptor}")
        if stat.S_ISDIR(status.st_mode):
            folder = str(path.readlink())
            self._names[folder] = {entry.name: entry.inode() for entry in os.scandir(folder)}
        else:
            self._contents[status.st_ino] = path.read_bytes()

    def close_all(self) -> None:
        """Close the descriptors of an ended process."""
        for descriptor in self.open:
            with suppress(OSError):
                os.close(descriptor)
        self.open.clear()

    def lose_power(self) -> None:
        """Keep synced contents, and a random part of other contents."""
        if self._chosen.random() < 0.2:
            return
        for folder, _, files in sorted(os.walk(self.directory)):
            names = self._names.get(folder, {})
            for name in files:
                path = Path(folder, name)
                if names.get(name) != path.stat().st_ino:
                    path.unlink()
            for name, inode in sorted(names.items()):
                path = Path(folder, name)
                if path.is_dir():
                    continue
                data, newer = self._contents.get(inode), path.read_bytes() if path.exists() else b""
                if data is None or (data != newer and path.exists() and self._chosen.random() < 0.5):
                    data = newer[: self._chosen.randint(0, len(newer))]
                path.write_bytes(data)
                self._contents[path.stat().st_ino] = data
                names[name] = path.stat().st_ino


class _Calls:
    """The intercepted calls of `os`, which go to the disk of the running machine."""

    _open, _close, _write = staticmethod(os.open), staticmethod(os.close), staticmethod(os.write)

    def __init__(self, world: "World") -> None:
        self._world = world

    def _disk(self) -> Disk | None:
        machine = self._world.running
        if machine is None or machine.disk is None:
            return None
        if machine.loop is None or self._world.is_over:
            raise ProcessDied
        return machine.disk

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        disk = self._disk()
        if disk is not None and flags & os.O_CREAT:
            disk.changes()
            disk.check(self._world.now)
        descriptor = self._open(path, flags, mode, dir_fd=dir_fd)
        if disk is not None:
            disk.open.add(descriptor)
        return descriptor

    def close(self, descriptor: int) -> None:
        if self._world.is_over:
            # An ended process closes nothing, because another process may have reused the number.
            return
        disk = self._disk()
        if disk is not None:
            if descriptor not in disk.open:
                raise OSError(errno.EBADF, "bad file descriptor")
            disk.open.discard(descriptor)
        self._close(descriptor)

    def write(self, descriptor: int, data: Any) -> int:
        disk = self._disk()
        if disk is not None:
            if disk.slow_seconds and self._world.thread is not None:
                disk.slow_until = max(disk.slow_until, self._world.now + disk.slow_seconds)
                self._world.thread.wait(disk.slow_seconds)
            disk.changes()
            if disk.error:
                # A full disk accepts a part of the data, and then nothing.
                data = data[: len(data) // 2] if disk.error == errno.ENOSPC else b""
                if not data:
                    disk.check(self._world.now)
        return self._write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        disk = self._disk()
        if disk is not None:
            disk.changes()
            disk.check(self._world.now)
            disk.synced(descriptor)

    def change(self, name: str, *errors: int) -> Callable[..., Any]:
        """A call that changes names or lengths and can fail with these errors."""
        real = getattr(os, name)

        def call(*args: Any, **options: Any) -> Any:
            disk = self._disk()
            if disk is not None:
                disk.changes()
                if disk.error in errors:
                    disk.check(self._world.now)
            return real(*args, **options)

        return call


@contextmanager
def simulated_disks(world: "World") -> Iterator[None]:
    """Redirect file operations of processes to their machines' disks."""
    calls = _Calls(world)
    replaced: dict[str, Callable[..., Any]] = {
        "open": calls.open,
        "close": calls.close,
        "write": calls.write,
        "fsync": calls.sync,
        "fdatasync": calls.sync,
        **{name: calls.change(name, errno.EIO, errno.ENOSPC) for name in ("replace", "rename", "mkdir")},
        "ftruncate": calls.change("ftruncate", errno.EIO),
        **{name: calls.change(name) for name in ("unlink", "rmdir")},
    }
    with replaced_attributes((os, name, function) for name, function in replaced.items()):
        yield


@contextmanager
def replaced_attributes(replaced: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """Replace attributes, given as (object, name, value), within the block; mock.patch would take 1 % of a run."""
    before = []
    try:
        for owner, name, value in replaced:
            before.append((owner, name, getattr(owner, name)))
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in reversed(before):
            setattr(owner, name, value)
