"""`namesrv-console passwd`: adds users to the file, changes their passwords and roles, removes them."""

import sys
from collections.abc import Callable
from getpass import getpass
from pathlib import Path
from typing import Final

from argon2 import PasswordHasher

from namesrv_console.access.users import MAX_PASSWORD, Entry, Role, check_name, read_users
from namesrv_runtime.durable_file import write_atomically

_MIN_PASSWORD: Final = 12


def passwd(path: Path, name: str, *, role: Role | None = None, delete: bool = False) -> str:
    """Add, change or remove a user, and return a text about it.

    The user types the password twice; without a terminal it is one line of standard input.

    Raises:
        ValueError: a name, password or file that cannot be used.
        OSError: the file cannot be written.
    """
    users = read_users(path) if delete or path.exists() else {}
    before = users.pop(check_name(name), None)
    if delete and before is None:
        raise ValueError(f"{path}: no user {name!r}")
    done = f"removed user {name!r}"
    if not delete:
        role = role or (before.role if before else "viewer")
        users[name] = Entry(role, PasswordHasher().hash(_password()))
        done = f"set the password of {role} {name!r}"
    lines = (f"{name}:{it.role}:{it.password_hash}\n" for name, it in sorted(users.items()))
    # Owner, group and mode stay, since the console may run as another user than the administrator.
    write_atomically(path, "".join(lines).encode(), like=path.stat() if path.exists() else None)
    return done


def _password() -> str:
    """The password that a user types. Raises ValueError, without the password."""
    if sys.stdin.isatty():
        ask: Callable[[str], str] = getpass
        password = ask("Password: ")
        if ask("Again: ") != password:
            raise ValueError("the passwords differ")
    else:
        password = sys.stdin.readline().rstrip("\n")
    if not _MIN_PASSWORD <= len(password) <= MAX_PASSWORD:
        raise ValueError(f"a password has {_MIN_PASSWORD} to {MAX_PASSWORD} characters, this one {len(password)}")
    return password
