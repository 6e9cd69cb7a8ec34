"""Users, their roles, and the file of users who sign in with a password: `name:role:argon2 hash` a line."""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from argon2 import PasswordHasher, extract_parameters
from argon2.exceptions import InvalidHashError, VerifyMismatchError
from starlette.authentication import BaseUser

from namesrv_runtime.durable_file import file_stamp
from namesrv_runtime.log import event

logger: Final = logging.getLogger(__name__)

Role = Literal["viewer", "operator"]
# How the user was identified: not at all (on loopback), by password, by the proxy in front, by OpenID Connect.
Source = Literal["open", "password", "proxy", "oidc"]

# Rights of each role; Starlette calls them scopes.
SCOPES: Final[Mapping[Role, tuple[str, ...]]] = {"viewer": ("viewer",), "operator": ("viewer", "operator")}
ROLES: Final[tuple[Role, ...]] = get_args(Role)

# The time of argon2 grows with the length of the password, too.
MAX_PASSWORD: Final = 1024
# An audit line and the page's menu show the whole name.
MAX_NAME: Final = 128
_NAME: Final = re.compile(r"[^\s:#@][^:]*")


@dataclass(frozen=True, slots=True)
class User(BaseUser):
    """The user of a request."""

    name: str
    role: Role
    source: Source

    @property
    def is_authenticated(self) -> bool:
        """True if the user has signed in; on an open console users are anonymous."""
        return self.source != "open"

    @property
    def display_name(self) -> str:
        """The name, for people."""
        return self.name

    @property
    def identity(self) -> str:
        """The name, which is unique for its source."""
        return self.name


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the users file."""

    role: Role
    password_hash: str


def check_name(name: str) -> str:
    """A user name that the file can hold. Raises ValueError."""
    if _NAME.fullmatch(name) is None or not name.isprintable() or name != name.strip() or len(name) > MAX_NAME:
        rule = f"printable, without ':', not beginning with '#', '@' or a blank, at most {MAX_NAME} characters"
        raise ValueError(f"not a valid user name: {name!r} ({rule})")
    return name


def parse_users(text: str) -> dict[str, Entry]:
    """The users of a file, by name. Raises ValueError that names the wrong line, and never shows a hash."""
    users: dict[str, Entry] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            name, role, password_hash = line.rstrip().split(":", 2)
        except ValueError:
            raise ValueError(f"line {number}: not of the form name:role:hash") from None
        try:
            extract_parameters(password_hash)
        except InvalidHashError:
            raise ValueError(f"line {number}: the hash of user {name!r} is not one of argon2") from None
        known = next((each for each in ROLES if each == role), None)
        if known is None:
            raise ValueError(f"line {number}: unknown role {role!r} (one of {', '.join(ROLES)})")
        if name in users:
            raise ValueError(f"duplicate user {name!r} on line {number}")
        users[check_name(name)] = Entry(known, password_hash)
    return users


def read_users(path: Path) -> dict[str, Entry]:
    """The users of a file. Raises ValueError, also when the file cannot be read."""
    try:
        # The codec removes a byte order mark, which editors on Windows write.
        return parse_users(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ValueError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:
        why = "not UTF-8" if isinstance(error, UnicodeDecodeError) else error
        raise ValueError(f"{path}: {why}") from None


class UsersFile:
    """The current users file: read again after each change; if the new text is invalid, the old users stay."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = file_stamp(path)
        self._users = read_users(path)
        if not self._users:
            raise ValueError(f"{path}: no users (namesrv-console passwd {path} NAME adds one)")

    def __repr__(self) -> str:
        return f"<UsersFile {self._path} [{', '.join(sorted(self._users))}]>"

    def warn_if_open(self) -> None:
        """Log a warning if every user of this machine can read the hashes."""
        if self._path.stat().st_mode & 0o004:
            event(logger, logging.WARNING, "users_file_readable_by_all", path=self._path, advice="chmod 600")

    def find(self, name: str) -> Entry | None:
        """The user with a name in the current file; None if unknown."""
        stamp = file_stamp(self._path)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._users = read_users(self._path)
            except ValueError as error:
                event(logger, logging.ERROR, "users_refused", error=error)
        return self._users.get(name)

    def verify(self, name: str, password: str) -> Entry | None:
        """The user if the password matches, else None; an unknown name takes as long. Blocks: call it in a thread."""
        entry = self.find(name)
        # For an unknown name the hash of another user is compared, which takes as long; the result is ignored.
        compared = entry or next(iter(self._users.values()), None)
        if compared is None or len(password) > MAX_PASSWORD:
            return None
        try:
            PasswordHasher().verify(compared.password_hash, password)
        except (VerifyMismatchError, UnicodeEncodeError):
            return None
        return entry
