"""The file is old or new and whole, whatever fails, and nothing is left lying about."""

import errno
import os
import random
import signal
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from namesrv_runtime.durable_file import remove_leftovers, set_aside, write_atomically
from tests.support.python_script import run_script

# 2025-01-31 23:59:59 UTC
LAST_SECOND_OF_JANUARY = 1_738_367_999.0


def names_in(directory: Path) -> list[str]:
    """What lies in the directory, hidden files too."""
    return sorted(path.name for path in directory.iterdir())


# ---- write_atomically ----


def test_new_file_is_written(tmp_path: Path) -> None:
    """The file is there, only its owner may read it, and nothing else is there."""
    write_atomically(tmp_path / "snapshot.json", b"new")

    assert b"new" == (tmp_path / "snapshot.json").read_bytes()
    assert 0o600 == stat.S_IMODE((tmp_path / "snapshot.json").stat().st_mode)
    assert ["snapshot.json"] == names_in(tmp_path)


def test_mode_is_the_callers(tmp_path: Path) -> None:
    """A file that others may read says so; the mode of the file before it does not matter."""
    path = tmp_path / "snapshot.json"
    write_atomically(path, b"old", mode=0o600)
    write_atomically(path, b"new", mode=0o640)

    assert 0o640 == stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("data", [b"", b"x", bytes(3_000_000)], ids=["empty", "one byte", "3 MB"])
def test_old_file_is_replaced_not_changed(tmp_path: Path, data: bytes) -> None:
    """Who has the old file open, or a link to it, still sees the old content."""
    path = tmp_path / "snapshot.json"
    path.write_bytes(b"old")
    (tmp_path / "link").hardlink_to(path)

    write_atomically(path, data)

    assert data == path.read_bytes()
    assert b"old" == (tmp_path / "link").read_bytes()
    assert ["link", "snapshot.json"] == names_in(tmp_path)


def test_symbolic_link_is_replaced_not_followed(tmp_path: Path) -> None:
    """A link in the file's place gives way to the file; what it pointed to is not written."""
    (tmp_path / "elsewhere").write_bytes(b"precious")
    (tmp_path / "snapshot.json").symlink_to(tmp_path / "elsewhere")

    write_atomically(tmp_path / "snapshot.json", b"new")

    assert not (tmp_path / "snapshot.json").is_symlink()
    assert b"new" == (tmp_path / "snapshot.json").read_bytes()
    assert b"precious" == (tmp_path / "elsewhere").read_bytes()


def test_partial_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that takes three bytes at a time gets all of them."""
    whole_write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, data: whole_write(file, data[:3]))
        write_atomically(tmp_path / "snapshot.json", b"0123456789")

    assert b"0123456789" == (tmp_path / "snapshot.json").read_bytes()


def test_missing_directory(tmp_path: Path) -> None:
    """No directory, no file, and the error says which directory."""
    with pytest.raises(FileNotFoundError, match="gone"):
        write_atomically(tmp_path / "gone" / "snapshot.json", b"new")

    assert [] == names_in(tmp_path)


def test_failing_rename_leaves_no_temporary_file(tmp_path: Path) -> None:
    """A directory in the file's place cannot be replaced; it stays, and the temporary file goes."""
    (tmp_path / "snapshot.json").mkdir()

    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path / "snapshot.json", b"new")

    assert ["snapshot.json"] == names_in(tmp_path)
    assert (tmp_path / "snapshot.json").is_dir()


def failing(call: Callable[..., Any], code: int, *, on_directories: bool) -> Callable[..., Any]:
    """The system call, failing for directories or for files."""

    def fails(file: int, *rest: Any) -> Any:
        if stat.S_ISDIR(os.fstat(file).st_mode) == on_directories:
            raise OSError(code, os.strerror(code))
        return call(file, *rest)

    return fails


@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_failing_write_or_sync_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    """Whether the disk is full at once or only when it is asked to be sure: the old file stays and nothing is left."""
    path = tmp_path / "snapshot.json"
    path.write_bytes(b"old")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(getattr(os, call), code, on_directories=False))
        with pytest.raises(OSError, match=os.strerror(code)):
            write_atomically(path, b"new")

    assert b"old" == path.read_bytes()
    assert ["snapshot.json"] == names_in(tmp_path)


def test_failing_sync_of_the_directory_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the rename there is no way back: the new file is there, whole, and the caller knows it may not last."""
    path = tmp_path / "snapshot.json"
    path.write_bytes(b"old")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(os.fsync, errno.EIO, on_directories=True))
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            write_atomically(path, b"new")

    assert b"new" == path.read_bytes()
    assert ["snapshot.json"] == names_in(tmp_path)


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EBADF])
def test_file_system_that_cannot_sync_directories_is_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A file system that refuses to sync any directory has nothing better to offer."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(os.fsync, code, on_directories=True))
        write_atomically(tmp_path / "snapshot.json", b"new")

    assert b"new" == (tmp_path / "snapshot.json").read_bytes()


def test_every_file_is_synced_before_its_rename_and_the_directory_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order that makes it durable: file, rename, directory."""
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noting_fsync(file: int) -> None:
        steps.append("sync directory" if stat.S_ISDIR(os.fstat(file).st_mode) else "sync file")
        fsync(file)

    def noting_replace(*arguments: Any, **options: Any) -> None:
        steps.append("rename")
        replace(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", noting_fsync)
        patch.setattr(os, "replace", noting_replace)
        write_atomically(tmp_path / "snapshot.json", b"new")

    assert ["sync file", "rename", "sync directory"] == steps


FULL_DISK = """
import resource, sys
from pathlib import Path
from namesrv_runtime.durable_file import write_atomically

# as a disk with room for 5,000 bytes: takes the first part and refuses the rest
resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, resource.RLIM_INFINITY))
try:
    write_atomically(Path(sys.argv[1]), b"n" * 8_000)
except OSError as error:
    print(error.strerror)
write_atomically(Path(sys.argv[1]).with_name("small"), b"n" * 4_000)
# whoever measures coverage writes more
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""


def test_file_that_does_not_fit(tmp_path: Path) -> None:
    """A real write that the kernel takes half of: the old file stays, no half is left; a smaller file still fits."""
    path = tmp_path / "snapshot.json"
    path.write_bytes(b"old")

    with run_script(FULL_DISK, path) as process:
        output, _ = process.communicate()

    assert 0 == process.returncode
    assert f"{os.strerror(errno.EFBIG)}\n" == output
    assert b"old" == path.read_bytes()
    assert ["small", "snapshot.json"] == names_in(tmp_path)


def test_writers_at_the_same_time(tmp_path: Path) -> None:
    """Four threads that write the same file leave one of their contents, whole, and nothing else."""
    path = tmp_path / "snapshot.json"
    with ThreadPoolExecutor(4) as pool:
        for written in [pool.submit(write_atomically, path, bytes([number]) * 50_000) for number in range(40)]:
            written.result()

    content = path.read_bytes()
    assert 50_000 == len(content)
    assert 1 == len(set(content))
    assert ["snapshot.json"] == names_in(tmp_path)


WRITES_FOREVER = """
import itertools, sys
from pathlib import Path
from namesrv_runtime.durable_file import write_atomically

for number in itertools.count(int(sys.argv[2])):
    write_atomically(Path(sys.argv[1]), b"%08d" % number * 10_000)
    print(number, flush=True)
"""


def test_kill_in_the_middle_of_writes(tmp_path: Path) -> None:
    """Thirty processes killed while they write: the file is always whole, and never older than what was confirmed."""
    path = tmp_path / "snapshot.json"
    dice = random.Random(9876)
    confirmed = 0
    for _ in range(30):
        with run_script(WRITES_FOREVER, path, confirmed + 1) as process:
            assert process.stdout is not None
            process.stdout.readline()
            # somewhere in the next write, at another place each time
            for _ in range(dice.randrange(60_000)):
                pass
            process.send_signal(signal.SIGKILL)
            confirmed = max([confirmed + 1, *(int(line) for line in process.stdout)])

        content = path.read_bytes()
        number = int(content[:8])
        assert b"%08d" % number * 10_000 == content
        assert confirmed <= number <= confirmed + 1
        confirmed = number

    remove_leftovers(path)
    assert ["snapshot.json"] == names_in(tmp_path)


# ---- remove_leftovers ----


def test_only_the_files_own_leftovers_are_removed(tmp_path: Path) -> None:
    """What a killed writer of this file left goes; the file, other files and their leftovers stay."""
    staying = [
        ".kvConfig.json.0123456789abcdef.tmp",  # another file's
        ".snapshot.json.0123456789abcde.tmp",  # not ours: a digit short
        ".snapshot.json.0123456789abcdef.tmp.bak",
        ".snapshotxjson.0123456789abcdef.tmp",
        "snapshot.json",
        "snapshot.json.damaged-20250131T235959Z",
    ]
    for name in [*staying, ".snapshot.json.0123456789abcdef.tmp", ".snapshot.json.fedcba9876543210.tmp"]:
        (tmp_path / name).touch()

    assert 2 == remove_leftovers(tmp_path / "snapshot.json")
    assert staying == names_in(tmp_path)


def test_no_directory_has_no_leftovers(tmp_path: Path) -> None:
    """A data directory that does not exist yet is no error here."""
    assert 0 == remove_leftovers(tmp_path / "gone" / "snapshot.json")


# ---- set_aside ----


def test_damaged_file_is_kept_under_another_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The content is kept, and the name says when; one warning says where and why."""
    path = tmp_path / "snapshot.json"
    path.write_bytes(b"damaged")

    kept_as = set_aside(path, "torn", wall_seconds=LAST_SECOND_OF_JANUARY)

    assert tmp_path / "snapshot.json.damaged-20250131T235959Z" == kept_as
    assert b"damaged" == kept_as.read_bytes()
    assert [kept_as.name] == names_in(tmp_path)
    (record,) = caplog.records
    assert "WARNING damaged_file_set_aside" == f"{record.levelname} {record.msg}"
    assert {"path": path, "kept_as": kept_as, "reason": "torn"} == vars(record)["fields"]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """Files set aside within one second get numbers; whatever has such a name already, a directory even, stays."""
    path = tmp_path / "snapshot.json"
    (tmp_path / "snapshot.json.damaged-20250131T235959Z-2").mkdir()
    kept = []
    for content in (b"first", b"second", b"third"):
        path.write_bytes(content)
        kept.append(set_aside(path, "torn", wall_seconds=LAST_SECOND_OF_JANUARY).name)

    assert [
        "snapshot.json.damaged-20250131T235959Z",
        "snapshot.json.damaged-20250131T235959Z-3",
        "snapshot.json.damaged-20250131T235959Z-4",
    ] == kept
    assert [b"first", b"second", b"third"] == [(tmp_path / name).read_bytes() for name in kept]
    assert 4 == len(names_in(tmp_path))


def test_file_that_cannot_be_set_aside_stays(tmp_path: Path) -> None:
    """A file that is not there cannot be renamed: an error, and no empty file in its name."""
    with pytest.raises(FileNotFoundError):
        set_aside(tmp_path / "snapshot.json", "torn")

    assert [] == names_in(tmp_path)


def test_time_of_the_machine_is_the_default(tmp_path: Path) -> None:
    """Without a time the name carries the present one."""
    path = tmp_path / "snapshot.json"
    path.touch()

    assert set_aside(path, "torn").name.startswith("snapshot.json.damaged-2")
