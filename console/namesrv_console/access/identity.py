"""Whom a request is from: a session, the proxy's header, or on an open console nobody in particular."""

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

from starlette.authentication import AuthCredentials, AuthenticationBackend, AuthenticationError
from starlette.requests import HTTPConnection

from namesrv_console.access.sessions import Sessions
from namesrv_console.access.settings import AccessSettings, Networks
from namesrv_console.access.users import MAX_NAME, SCOPES, User, UsersFile

# what somebody needs who has not signed in yet
_PUBLIC: Final = ("/login", "/preferences", "/static")
# in the signed cookie: which session
SESSION_KEY: Final = "id"

NOBODY: Final = User("", "viewer", "open")


class Identity(AuthenticationBackend):
    """Says who asks; refuses who does not say so, but for what is public."""

    def __init__(self, settings: AccessSettings, users: UsersFile | None, sessions: Sessions) -> None:
        self._settings = settings
        self._users = users
        self._sessions = sessions

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, User] | None:
        """The user and what that may do. Raises AuthenticationError."""
        user = self.user_of(conn)
        if user is not None:
            return AuthCredentials(SCOPES[user.role]), user
        if is_public(conn.url.path):
            return None
        raise AuthenticationError("not signed in")

    def user_of(self, conn: HTTPConnection) -> User | None:
        """Who asks, as of now: also what lasts asks again."""
        if not self._settings.asks_who:
            return NOBODY
        return self._by_session(conn) or self._by_proxy(conn)

    def address_of(self, conn: HTTPConnection) -> str:
        """The client's address: the one that the nearest proxy saw, if that proxy may name it, else the peer's."""
        settings = self._settings
        forwarded = conn.headers.getlist("x-forwarded-for")
        if forwarded and _is_from(conn, (*settings.trusted_proxies, *settings.forwarded_for_from)):
            # a client can send addresses and whole header lines of its own, which come before the proxy's
            return forwarded[-1].rpartition(",")[2].strip()[:64]
        return "" if conn.client is None else conn.client.host

    def _by_session(self, conn: HTTPConnection) -> User | None:
        session = self._sessions.find(str(conn.session.get(SESSION_KEY, "")))
        if session is None:
            return None
        if session.source != "password":
            return User(session.name, session.role, session.source)
        entry = None if self._users is None else self._users.find(session.name)
        if entry is None or entry.password_hash != session.password_hash:
            # removed, or another password since
            return None
        return User(session.name, entry.role, "password")

    def _by_proxy(self, conn: HTTPConnection) -> User | None:
        if not _is_from(conn, self._settings.trusted_proxies):
            return None
        said = _texts(conn, self._settings.proxy_user_header)
        groups = _texts(conn, self._settings.proxy_groups_header)
        # two would mean that one of them passed the proxy
        if len(said) != 1 or len(groups) > 1:
            return None
        name = said[0].strip()
        role = self._settings.role_of(name, _split(groups)) if is_name(name) else None
        return None if role is None else User(name, role, "proxy")


def _is_from(conn: HTTPConnection, networks: Networks) -> bool:
    """True if the peer of the connection is in one of these networks."""
    peer = None if conn.client is None else conn.client.host
    try:
        address = ip_address(peer or "")
    except ValueError:
        return False
    # a socket for both versions shows IPv4 addresses as IPv6 ones
    address = getattr(address, "ipv4_mapped", None) or address
    return any(address in network for network in networks)


def is_public(path: str) -> bool:
    """Whether a path is for those who have not signed in, too."""
    return path in _PUBLIC or path.startswith(tuple(f"{each}/" for each in _PUBLIC))


def is_name(name: object) -> bool:
    """Whether somebody else's name of a user can be shown and audited."""
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable()


def _texts(conn: HTTPConnection, header: str) -> list[str]:
    """The values of a header; Starlette takes them for Latin-1, and today's proxies send UTF-8."""
    values = conn.headers.getlist(header)
    try:
        return [value.encode("latin-1").decode() for value in values]
    except UnicodeDecodeError:
        return values


def _split(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(group.strip() for text in texts for group in text.split(",") if group.strip())
