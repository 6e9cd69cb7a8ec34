"""The users file, and the command that writes it."""

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from namesrv_console.access.passwd import passwd
from namesrv_console.access.users import Entry, UsersFile, parse_users, read_users
from tests.support.console_access import PASSWORD, write_users
from tests.support.logged import logged

HASH = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$dGFnZ2dnZ2dnZ2dnZ2c"


def test_file_is_read(tmp_path: Path) -> None:
    """A line for each user; the hash follows the second colon. Editors on Windows begin with a mark."""
    path, text = tmp_path / "users", f"olga:operator:{HASH}\n# who may only look\n\nvera w.:viewer:{HASH}\n"
    path.write_text(text, encoding="utf-8-sig")

    assert read_users(path) == {"olga": Entry("operator", HASH), "vera w.": Entry("viewer", HASH)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("olga", "line 1: not of the form name:role:hash"),
        ("olga:operator:plain", "line 1: the hash of user 'olga' is not one of argon2"),
        (f"\nolga:admin:{HASH}", "line 2: unknown role 'admin' (one of viewer, operator)"),
        (f"olga:viewer:{HASH}\nolga:operator:{HASH}", "duplicate user 'olga' on line 2"),
        (f"\x1b[31molga:viewer:{HASH}", "not a valid user name: '\\x1b[31molga' (printable"),
        (f":viewer:{HASH}", "not a valid user name: ''"),
        (f"{'o' * 129}:viewer:{HASH}", "at most 128 characters"),
    ],
)
def test_wrong_file_is_refused(text: str, message: str) -> None:
    """The error names the line, and contains no hash."""
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        parse_users(text)
    assert HASH not in str(raised.value)


def test_passwd_keeps_owner_and_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user of the console's unit can still read the file after the administrator has changed it."""
    path, group = tmp_path / "users", 65_534 if os.geteuid() == 0 else os.getgroups()[-1]
    for name in ("olga", "vera"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(f"{PASSWORD}\n"))
        passwd(path, name)
        if name == "olga":
            os.chown(path, -1, group)
            path.chmod(0o640)

    assert (path.stat().st_gid, path.stat().st_mode & 0o777) == (group, 0o640)
    assert [*tmp_path.iterdir()] == [path]


def test_passwd_adds_changes_and_removes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`passwd` adds a user, changes a password, keeps the role unless another one is given, and removes a user."""
    path = tmp_path / "users"

    def typed(*lines: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))

    typed(PASSWORD)
    assert passwd(path, "olga", role="operator") == "set the password of operator 'olga'"
    assert path.stat().st_mode & 0o777 == 0o600
    typed("another passphrase")
    assert passwd(path, "olga") == "set the password of operator 'olga'"
    users = UsersFile(path)
    assert users.verify("olga", PASSWORD) is None
    assert read_users(path)["olga"] == users.verify("olga", "another passphrase")
    typed(PASSWORD)
    assert passwd(path, "vera") == "set the password of viewer 'vera'"

    assert passwd(path, "olga", delete=True) == "removed user 'olga'"
    assert list(read_users(path)) == ["vera"]
    typed("short")
    with pytest.raises(ValueError, match="a password has 12 to 1024 characters, this one 5"):
        passwd(path, "vera")
    with pytest.raises(ValueError, match="no user 'olga'"):
        passwd(path, "olga", delete=True)


def test_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """As on a full disk: a limit makes every file too large."""
    path = tmp_path / "users"
    command = (sys.executable, "-m", "namesrv_console", "passwd", str(path), "olga")
    ended = subprocess.run(
        ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", *command],
        input=f"{PASSWORD}\n",
        capture_output=True,
        text=True,
        check=False,
        # Coverage could not write its file either.
        env={name: value for name, value in os.environ.items() if not name.startswith("COV")},
    )

    assert (ended.returncode, ended.stderr) == (2, f"namesrv-console: {path}: file too large\n")
    assert list(tmp_path.iterdir()) == []


def test_file_without_users_is_refused(tmp_path: Path) -> None:
    """A file without users is an error, and so is a missing file."""
    (tmp_path / "users").write_text("# no users yet\n")
    with pytest.raises(ValueError, match=r"users: no users \(namesrv-console passwd "):
        UsersFile(tmp_path / "users")
    with pytest.raises(ValueError, match="other: no such file or directory"):
        UsersFile(tmp_path / "other")


def test_world_readable_file_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Only the console needs to read the hashes."""
    users = write_users(tmp_path / "users")
    UsersFile(users).warn_if_open()
    assert logged(caplog, "users_file_readable_by_all") == []
    users.chmod(0o644)
    UsersFile(users).warn_if_open()
    assert logged(caplog, "users_file_readable_by_all") == [{"path": users, "advice": "chmod 600"}]


def test_unknown_user_costs_as_much_as_a_wrong_password(tmp_path: Path) -> None:
    """A hash is compared for unknown users, too, so that the time reveals no names; long passwords are never hashed."""
    users = UsersFile(write_users(tmp_path / "users"))
    assert users.verify("unknown", f"{PASSWORD} of olga") is None
    assert users.verify("unknown", f"{PASSWORD} of vera") is None
    assert users.verify("olga", f"{PASSWORD} of vera") is None
    assert users.verify("olga", "\ud800") is None
    assert users.verify("olga", "x" * 2000) is None
    found = users.verify("olga", f"{PASSWORD} of olga")
    assert found is not None
    assert found.role == "operator"
