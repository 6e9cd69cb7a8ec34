"""The user of a request: from a session, from the proxy's header, or anonymous on an open console."""

from collections.abc import Iterable
from typing import Final

from starlette.authentication import AuthCredentials, AuthenticationBackend, AuthenticationError
from starlette.requests import HTTPConnection

from namesrv_console.access.sessions import Sessions
from namesrv_console.access.settings import AccessSettings, Networks
from namesrv_console.access.users import MAX_NAME, SCOPES, User, UsersFile
from namesrv_remoting.addresses import address_of
from namesrv_runtime.clock import Clock

# Paths that a user needs before signing in.
_PUBLIC: Final = ("/login", "/preferences", "/static")
# Key of the session id in the signed cookie.
SESSION_KEY: Final = "id"

ANONYMOUS: Final = User("", "viewer", "open")


class Identity(AuthenticationBackend):
    """Finds the user of each request; refuses a request without a user unless its path is public.

    Raises ValueError for a users file that cannot be used.
    """

    def __init__(self, settings: AccessSettings, clock: Clock) -> None:
        self.settings = settings
        # None: users do not sign in with passwords.
        self.users = None if settings.users is None else UsersFile(settings.users)
        if self.users is not None:
            self.users.warn_if_open()
        self.sessions = Sessions(settings.session_hours * 3600, clock)

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, User] | None:
        """The scopes and the user of a request. Raises AuthenticationError."""
        user = self.user_of(conn)
        if user is not None:
            return AuthCredentials(SCOPES[user.role]), user
        if is_public(conn.url.path):
            return None
        raise AuthenticationError("not signed in")

    def user_of(self, conn: HTTPConnection) -> User | None:
        """The user of a connection as of now; the guard calls this again for streams that are still open."""
        if not self.settings.requires_sign_in:
            return ANONYMOUS
        return self._by_session(conn) or self._by_proxy(conn)

    def address_of(self, conn: HTTPConnection) -> str:
        """The client's address: the one that the nearest proxy saw, if that proxy may name it, else the peer's."""
        settings = self.settings
        forwarded = conn.headers.getlist("x-forwarded-for")
        if forwarded and _is_from(conn, (*settings.trusted_proxies, *settings.forwarded_for_from)):
            # A client can send addresses and whole header lines of its own, which come before the proxy's.
            return forwarded[-1].rpartition(",")[2].strip()[:64]
        return "" if conn.client is None else conn.client.host

    def _by_session(self, conn: HTTPConnection) -> User | None:
        session = self.sessions.find(str(conn.session.get(SESSION_KEY, "")))
        if session is None:
            return None
        user = session.user
        if user.source != "password":
            return user
        entry = None if self.users is None else self.users.find(user.name)
        if entry is None or entry.password_hash != session.password_hash:
            # The user was removed, or the password has changed since the user signed in.
            return None
        return User(user.name, entry.role, "password")

    def _by_proxy(self, conn: HTTPConnection) -> User | None:
        if not _is_from(conn, self.settings.trusted_proxies):
            return None
        names = _texts(conn, self.settings.proxy_user_header)
        groups = _texts(conn, self.settings.proxy_groups_header)
        # With two user headers, one of them was sent by the client and passed on by the proxy.
        if len(names) != 1 or len(groups) > 1:
            return None
        name = names[0].strip()
        role = self.settings.role_of(name, _split(groups)) if is_name(name) else None
        return None if role is None else User(name, role, "proxy")


def _is_from(conn: HTTPConnection, networks: Networks) -> bool:
    """True if the peer of the connection is in one of these networks."""
    address = None if conn.client is None else address_of(conn.client.host)
    return address is not None and any(address in network for network in networks)


def is_public(path: str) -> bool:
    """True if users who have not signed in may request a path, too."""
    return path in _PUBLIC or path.startswith(tuple(f"{each}/" for each in _PUBLIC))


def is_name(name: object) -> bool:
    """True if a user name from a proxy or provider can be shown and audited."""
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable()


def _texts(conn: HTTPConnection, header: str) -> list[str]:
    """The values of a header; Starlette decodes them as Latin-1, but today's proxies send UTF-8."""
    values = conn.headers.getlist(header)
    try:
        return [value.encode("latin-1").decode() for value in values]
    except UnicodeDecodeError:
        return values


def _split(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(group.strip() for text in texts for group in text.split(",") if group.strip())
