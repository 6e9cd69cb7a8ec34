"""Brokers and clients of ZooKeeper and etcd, whose three servers are one ensemble with one table.

A broker has an entry that belongs to a session (ZooKeeper) or a lease (etcd). The broker keeps it alive through any of
the servers; the ensemble removes the entry of a broker that was silent for the expiry. One request reads all entries.
"""

import asyncio
import base64
import contextlib
import json
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from benchmarks.peers import zookeeper
from benchmarks.torture.load import EXPIRY_SECONDS, REGISTRATION_SECONDS, Broker
from benchmarks.torture.sessions import LOST, Dialect, Place, Session, View

# longest wait of a broker for a connection and a response together
_PATIENCE: Final = 1.0
# An entry that the ensemble has agreed on is in the table of every server that is well after this time.
_COPIED_SECONDS: Final = 1.0
# time between two attempts of a broker
_BETWEEN_SECONDS: Final = 0.2

R = TypeVar("R")


class EnteredBroker(Broker, Generic[R]):
    """A broker with one entry in the ensemble. It uses one server, and the next one when a request has no response."""

    def __init__(self, number: int, place: Place, servers: Sequence[str]) -> None:
        super().__init__(number, place, servers)
        # one session per server; the first one is in use
        self.sessions: list[Session[R]] = [Session(self.dialect, place, server, _PATIENCE) for server in servers]
        # the queues in the entry
        self._entered = 0
        self._is_paused = False

    async def start(self) -> None:
        """Make the entry, and keep it alive from then on."""
        self._is_paused = False
        await self._until_entered()
        self.started(self._keep())

    async def _until_entered(self) -> None:
        is_entered = False
        while not is_entered:
            with contextlib.suppress(*LOST):
                is_entered = await self.enter()
            if not is_entered:
                await asyncio.sleep(_BETWEEN_SECONDS)
        self._entered = self.queues
        for server in self.servers:
            self.acknowledged.setdefault(server, time.monotonic() + _COPIED_SECONDS)

    async def _keep(self) -> None:
        while not self._is_paused:
            await asyncio.sleep(REGISTRATION_SECONDS)
            is_kept = True
            with contextlib.suppress(*LOST):
                is_kept = await self.renew()
                await self._update()
            if not is_kept:
                await self._until_entered()

    async def _update(self) -> None:
        """Replace the entry if the queues have changed. Raises one of LOST."""
        if self._entered != self.queues and await self.replace():
            self._entered = self.queues

    async def ask(self, frame: bytes) -> R:
        """The response of the server in use, or of the next that has one. Raises one of LOST."""
        for _ in self.sessions[1:]:
            with contextlib.suppress(*LOST):
                return await self.sessions[0].request(frame)
            self.sessions.append(self.sessions.pop(0))
        return await self.sessions[0].request(frame)

    @abstractmethod
    async def enter(self) -> bool:
        """Make a session or lease, and the entry; True when done."""

    @abstractmethod
    async def renew(self) -> bool:
        """Keep the entry; False if it is gone."""

    @abstractmethod
    async def replace(self) -> bool:
        """Replace the entry by one with the present queues; True when done. May be called again."""

    async def change(self) -> None:
        """Change the queues, which are part of the entry; a failed change is repeated with the next sign of life."""
        self.queues += 1
        with contextlib.suppress(*LOST):
            await self._update()

    async def fall_silent(self) -> None:
        """Keep the entry alive once more, and then never again; the connections stay open."""
        with contextlib.suppress(*LOST):
            await self.renew()
        self._is_paused = True
        self.rest()
        self.silenced()

    async def restart(self) -> None:
        """Close the connections, and make the entry again in a new session or with a new lease."""
        self.rest()
        self.close()
        await self.start()

    def close(self) -> None:
        """Close all connections; the session or lease stays until it expires."""
        for session in self.sessions:
            session.close()


# -- ZooKeeper --------------------------------------------------------------------------------------------------------

_NO_NODE, _NODE_EXISTS = -101, -110
# position of the error code in a response, after xid and zxid
_ERROR: Final = slice(12, zookeeper.REPLY_HEAD)
_ROOT: Final = b"/brokers"
# position of the session's timeout in the response to a greeting, 0 if it has expired; then its number and password
_TIMEOUT: Final = slice(4, 8)
_IDENTITY: Final = slice(8, 36)
_SESSION_MS: Final = round(EXPIRY_SECONDS * 1000)


def _code(response: bytes) -> int:
    return int.from_bytes(response[_ERROR], signed=True)


class ZooKeeper(Dialect[bytes]):
    """ZooKeeper's protocol: entries are ephemeral nodes, which are named NAME:QUEUES."""

    greeting = zookeeper.greeting(_SESSION_MS)
    # every server answers from its own table
    pull = look = zookeeper.request(zookeeper.CHILDREN, zookeeper.buffer(_ROOT) + b"\0")

    def response_in(self, data: bytes) -> bytes | None:
        """The response after its length; None while it is incomplete."""
        end = 4 + int.from_bytes(data[:4])
        return data[4:end] if len(data) >= max(4, end) else None

    def view_of(self, response: bytes) -> View | None:
        """The brokers in a list of nodes; None for an error."""
        if _code(response):
            return None
        view: dict[str, int] = {}
        position = zookeeper.REPLY_HEAD + 4
        while position < len(response):
            end = position + 4 + int.from_bytes(response[position : position + 4])
            name, _, queues = response[position + 4 : end].decode().rpartition(":")
            # A broker whose queues change right now has two nodes.
            view[name] = max(view.get(name, 0), int(queues))
            position = end
        return view


class ZooKeeperBroker(EnteredBroker[bytes]):
    """A broker with an ephemeral node."""

    dialect = ZooKeeper()

    async def enter(self) -> bool:
        """Begin a session, and create its node."""
        self.close()
        self._continue_with(zookeeper.NO_SESSION)
        if _code(await self.ask(zookeeper.create(_ROOT))) not in {0, _NODE_EXISTS}:
            return False
        self._continue_with((self.sessions[0].welcome or b"")[_IDENTITY])
        return await self._make()

    def _continue_with(self, identity: bytes) -> None:
        """Let further connections, to any server, belong to this session."""
        for session in self.sessions:
            session.greeting, session.welcome = zookeeper.greeting(_SESSION_MS, identity), None

    async def _make(self) -> bool:
        path = self._path(self.queues)
        code = _code(await self.ask(zookeeper.create(path, kind=zookeeper.EPHEMERAL)))
        if code == _NODE_EXISTS:
            # The node may belong to the session of the broker's last life.
            await self._remove(path)
            code = _code(await self.ask(zookeeper.create(path, kind=zookeeper.EPHEMERAL)))
        return code == 0

    def _path(self, queues: int) -> bytes:
        return b"%b/%b:%d" % (_ROOT, self.name.encode(), queues)

    async def _remove(self, path: bytes) -> bool:
        return _code(
            await self.ask(zookeeper.request(zookeeper.DELETE, zookeeper.buffer(path) + zookeeper.integer(-1)))
        ) in {0, _NO_NODE}

    async def renew(self) -> bool:
        """Send a ping; False if the session has expired."""
        with contextlib.suppress(*LOST):
            await self.ask(zookeeper.request(zookeeper.PING, xid=zookeeper.PING_XID))
        return all(session.welcome is None or any(session.welcome[_TIMEOUT]) for session in self.sessions)

    async def replace(self) -> bool:
        """Create the node with the present queues, and then remove the one before."""
        return await self._make() and await self._remove(self._path(self.queues - 1))


# -- etcd -------------------------------------------------------------------------------------------------------------

_KEYS: Final = "/brokers/"
# the first key after all that begin so
_AFTER_KEYS: Final = "/brokers0"


def _text(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


def _post(path: str, members: Mapping[str, Any]) -> bytes:
    body = json.dumps(members).encode()
    return b"POST %b HTTP/1.1\r\nHost: etcd\r\nContent-Length: %d\r\n\r\n%b" % (path.encode(), len(body), body)


_RANGE: Final = {"key": _text(_KEYS), "range_end": _text(_AFTER_KEYS)}


class Etcd(Dialect[dict[str, Any]]):
    """etcd's JSON gateway: entries are keys /brokers/NAME that belong to a lease; their values are the queues."""

    # as etcd's clients do by default: a read that the ensemble has agreed on
    pull = _post("/v3/kv/range", _RANGE)
    look = _post("/v3/kv/range", {**_RANGE, "serializable": True})

    def response_in(self, data: bytes) -> dict[str, Any] | None:
        """The members of an HTTP response; None while it is incomplete."""
        head, found, body = data.partition(b"\r\n\r\n")
        if not found:
            return None
        lengths = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
        if lengths:
            is_whole = len(body) >= int(lengths[0].partition(b":")[2])
        else:
            is_whole = body.endswith(b"0\r\n\r\n")
            # chunks, each after a line with its size; JSON has no such line ends
            body = b"".join(body.split(b"\r\n")[1:-3:2]) if is_whole else b""
        if not is_whole:
            return None
        response: dict[str, Any] = json.loads(body)
        return response

    def view_of(self, response: dict[str, Any]) -> View | None:
        """The brokers in a range of keys; None for an error."""
        if "header" not in response:
            return None
        return {
            base64.b64decode(kv["key"]).decode().removeprefix(_KEYS): int(base64.b64decode(kv["value"]))
            for kv in response.get("kvs", ())
        }


class EtcdBroker(EnteredBroker[dict[str, Any]]):
    """A broker with a lease and its key."""

    dialect = Etcd()
    # number of the lease
    _lease = ""

    async def enter(self) -> bool:
        """Get a lease, and put the key that belongs to it."""
        self._lease = (await self.ask(_post("/v3/lease/grant", {"TTL": round(EXPIRY_SECONDS)}))).get("ID", "")
        return bool(self._lease) and await self.replace()

    async def renew(self) -> bool:
        """Keep the lease alive; False if it has expired."""
        response = await self.ask(_post("/v3/lease/keepalive", {"ID": self._lease}))
        return "TTL" in response.get("result", {})

    async def replace(self) -> bool:
        """Put the key with the present queues."""
        put = {"key": _text(f"{_KEYS}{self.name}"), "value": _text(str(self.queues)), "lease": self._lease}
        return "header" in await self.ask(_post("/v3/kv/put", put))
