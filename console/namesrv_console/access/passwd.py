"""`namesrv-console passwd`: adds users to the file, changes their passwords and roles, removes them."""

import sys
from collections.abc import Callable
from getpass import getpass
from pathlib import Path

from namesrv_console.access.users import Role, remove_user, set_user


def passwd(path: Path, name: str, *, role: Role | None = None, delete: bool = False) -> str:
    """Add, change or remove a user, and return a text about it.

    The user types the password twice; without a terminal it is one line of standard input.

    Raises:
        ValueError: a name, password or file that cannot be used.
        OSError: the file cannot be written.
    """
    if delete:
        remove_user(path, name)
        return f"removed user {name!r}"
    role = set_user(path, name, role, _password())
    return f"set the password of {role} {name!r}"


def _password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    ask: Callable[[str], str] = getpass
    password = ask("Password: ")
    if ask("Again: ") != password:
        raise ValueError("the passwords differ")
    return password
