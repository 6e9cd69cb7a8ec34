"""Durable files: replaced atomically, without leftovers after failures."""

import contextlib
import errno
import os
import re
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from namesrv_runtime.durable_file import remove_leftovers, set_aside, write_atomically


def names_in(directory: Path) -> list[str]:
    """Names in the directory, hidden files included."""
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("data", [b"", b"x", bytes(3_000_000)], ids=["empty", "one byte", "3 MB"])
def test_file_is_replaced_not_changed(tmp_path: Path, data: bytes) -> None:
    """An open old file and a link to it keep the old content; the caller chooses the mode."""
    path = tmp_path / "snapshot.json"
    write_atomically(path, b"old")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (tmp_path / "link").hardlink_to(path)
    (tmp_path / "symbolic").symlink_to(tmp_path / "link")

    write_atomically(path, data, mode=0o640)
    write_atomically(tmp_path / "symbolic", b"not followed")

    assert (path.read_bytes(), (tmp_path / "link").read_bytes()) == (data, b"old")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert (tmp_path / "symbolic").read_bytes() == b"not followed"
    assert not (tmp_path / "symbolic").is_symlink()
    assert names_in(tmp_path) == ["link", "snapshot.json", "symbolic"]


def failing(call: Callable[..., Any], code: int, *, on_directories: bool) -> Callable[..., Any]:
    """The system call, failing for directories or for files."""

    def fails(file: int, *rest: Any) -> Any:
        if stat.S_ISDIR(os.fstat(file).st_mode) == on_directories:
            raise OSError(code, os.strerror(code))
        return call(file, *rest)

    return fails


@pytest.mark.parametrize(
    ("call", "code", "on_directories", "error", "content"),
    [
        *(("write", code, False, code, b"old") for code in (errno.ENOSPC, errno.EIO, errno.EINVAL)),
        *(("fsync", code, False, code, b"old") for code in (errno.EDQUOT, errno.EIO, errno.EINVAL)),
        # the rename cannot be undone: the caller learns that the new file may not survive
        ("fsync", errno.EIO, True, errno.EIO, b"new"),
        # some file systems cannot sync directories
        ("fsync", errno.EINVAL, True, None, b"new"),
        ("fsync", errno.EBADF, True, None, b"new"),
    ],
)
def test_failed_system_call_leaves_one_whole_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    code: int,
    error: int | None,
    content: bytes,
    *,
    on_directories: bool,
) -> None:
    """A full disk may be reported by the write or by the sync."""
    path = tmp_path / "snapshot.json"
    path.write_bytes(b"old")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(getattr(os, call), code, on_directories=on_directories))
        with contextlib.nullcontext() if error is None else pytest.raises(OSError, match=os.strerror(error)):
            write_atomically(path, b"new")

    assert path.read_bytes() == content
    assert names_in(tmp_path) == ["snapshot.json"]


def test_file_is_synced_before_its_rename_and_the_directory_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order makes the file durable, and partial writes are continued."""
    steps: list[str] = []
    write, fsync, replace = os.write, os.fsync, os.replace

    def noting_fsync(file: int) -> None:
        steps.append("sync directory" if stat.S_ISDIR(os.fstat(file).st_mode) else "sync file")
        fsync(file)

    def noting_replace(*arguments: Any, **options: Any) -> None:
        steps.append("rename")
        replace(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, data: write(file, data[:3]))
        patch.setattr(os, "fsync", noting_fsync)
        patch.setattr(os, "replace", noting_replace)
        write_atomically(tmp_path / "snapshot.json", b"0123456789")

    assert steps == ["sync file", "rename", "sync directory"]
    assert (tmp_path / "snapshot.json").read_bytes() == b"0123456789"


def test_concurrent_writers_leave_one_whole_file(tmp_path: Path) -> None:
    """Four threads that write the same file leave one of their contents and no other file."""
    path = tmp_path / "snapshot.json"
    with ThreadPoolExecutor(4) as pool:
        for written in [pool.submit(write_atomically, path, bytes([number]) * 50_000) for number in range(40)]:
            written.result()

    content = path.read_bytes()
    assert len(content) == 50_000
    assert len(set(content)) == 1
    assert names_in(tmp_path) == ["snapshot.json"]


def test_own_leftovers_are_removed(tmp_path: Path) -> None:
    """Leftovers of killed writers of this file are removed; all other files stay."""
    staying = [
        ".kvConfig.json.0123456789abcdef.tmp",  # of another file
        ".snapshot.json.0123456789abcde.tmp",  # a digit short
        ".snapshot.json.0123456789abcdef.tmp.bak",
        ".snapshotxjson.0123456789abcdef.tmp",
        "snapshot.json",
        "snapshot.json.damaged-20250131T235959Z",
    ]
    for name in [*staying, ".snapshot.json.0123456789abcdef.tmp", ".snapshot.json.fedcba9876543210.tmp"]:
        (tmp_path / name).touch()

    remove_leftovers(tmp_path / "snapshot.json")
    remove_leftovers(tmp_path / "gone" / "snapshot.json")

    assert staying == names_in(tmp_path)


def test_damaged_file_is_renamed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The new name has the time, and a number within one second; a warning has path and reason; no file is lost."""
    path = tmp_path / "snapshot.json"
    kept = []
    for number in range(50):
        path.write_bytes(b"%d" % number)
        kept.append(set_aside(path, "torn"))

    assert [each.read_bytes() for each in kept] == [b"%d" % number for number in range(50)]
    assert {each.name for each in kept} == set(names_in(tmp_path))
    assert all(re.fullmatch(r"snapshot\.json\.damaged-2\d{7}T\d{6}Z(-\d+)?", each.name) for each in kept)
    assert any(each.name.endswith("Z-2") for each in kept)
    assert f"{caplog.records[0].levelname} {caplog.records[0].msg}" == "WARNING damaged_file_set_aside"
    assert vars(caplog.records[0])["fields"] == {"path": path, "kept_as": kept[0], "reason": "torn"}


def test_missing_file_cannot_be_renamed(tmp_path: Path) -> None:
    """Renaming raises an error and creates no file."""
    with pytest.raises(FileNotFoundError):
        set_aside(tmp_path / "snapshot.json", "torn")

    assert names_in(tmp_path) == []
