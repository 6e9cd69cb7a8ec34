"""No request without a response, of any class, keeps the loop from another peer.

The cases are made from the product's own table of request codes: each code, as a request, a response and a one-way
request, by each kind of account, in each kind of header; by two of the accounts over TLS, and by the two others
without. One peer sends a case over and over as fast as the server reads; another one, from another address, sends one
request after the other meanwhile. Measured is what the loop's thread computes between such a request and its response.
That is processor time: what other processes of the machine take, and how long the loop waits for a processor, does not
count. Time that a hypervisor takes from the machine does count, because the kernel does not know of it; so a stall is
one that three attempts show. A fair loop computes for 2 to 9 ms; one that processes 8 MiB of a peer before it looks at
another one for 90 ms and more, in each attempt.
"""

import asyncio
import contextlib
import gc
import itertools
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from benchmarks.abuse.records import KEY_UPDATE_BYTES, TlsRecords
from namesrv_remoting.codes import FLAG_ONEWAY, FLAG_RESPONSE
from namesrv_remoting.requests import REQUESTS
from namesrv_remoting.signatures import sign_rocketmq
from tests.support.certificates import Authority
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import SPELLINGS, Spelling, registration, request_frame
from tests.support.raw_peer import RawPeer

STALL_SECONDS: Final = 0.05
# one read of a socket by uvloop
FLOOD_BYTES: Final = 8 * 1024 * 1024
# a case ends when its flood is sent, or after this processor time of the loop's thread
CASE_SECONDS: Final = 0.03
# requests after the flood, for bytes still in the sockets
LAST_REQUESTS: Final = 5
ATTEMPTS: Final = 3
ATTACKER: Final = "127.0.0.1"
ELSEWHERE: Final = "127.0.0.3"
FLAGS: Final = {"request": 0, "response": FLAG_RESPONSE, "oneway": FLAG_ONEWAY}
UNKNOWN_CODE: Final = 29_999
SECRET: Final = "a-secret-of-a-broker"

# asyncio's own loop reads 256 KiB at once, and looks at other sockets after each read
pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_factories=["uvloop"])]

# kind of account -> the access file; empty: without one
ACCOUNTS: Final = {
    "none": "",
    "open": """
        [accounts.everybody]
        networks = ["127.0.0.0/8"]
        may = ["route-read", "broker-control", "admin-read", "admin-write"]
    """,
    "narrowed": """
        [accounts.team]
        networks = ["127.0.0.0/8"]
        may = [
            { access = "route-read", topics = ["hostile*"] },
            { access = "broker-control", clusters = ["Hostile"], brokers = ["hostile-*"], topics = ["hostile*"] },
        ]
    """,
    "signed": f"""
        [accounts.team]
        access_key = "team"
        secrets = ["{SECRET}"]
        may = ["route-read", "broker-control"]
    """,
}


class Case(NamedTuple):
    """One kind of frame."""

    code: int
    kind: str
    spelling: Spelling

    def frame(self, fields: Mapping[str, str], account: str, body: bytes = b"") -> bytes:
        """The frame, with the account's signature if it has one."""
        if account == "signed":
            fields = sign_rocketmq(fields, body, "team", SECRET.encode())
        return request_frame(self.code, fields, body, spelling=self.spelling, flag=FLAGS[self.kind])


def cases(account: str, *, with_tls: bool) -> Iterator[Case]:
    """The codes of the table, and an unknown one, of every kind: half of them over TLS, the others without."""
    codes = [*map(int, REQUESTS), UNKNOWN_CODE]
    shift = [*ACCOUNTS].index(account)
    for number, (code, kind) in enumerate(itertools.product(codes, FLAGS)):
        if (number + shift) % 2 == with_tls:
            yield Case(code, kind, SPELLINGS[(number // len(FLAGS) + number + shift) % len(SPELLINGS)])


def broker_fields(name: str) -> dict[str, str]:
    """Ext fields of requests about a broker."""
    return {
        "clusterName": "Hostile", "cluster": "Hostile", "brokerName": name, "brokerAddr": f"{name}:10911",
        "brokerId": "0", "topic": "hostile",
    }  # fmt: skip


def fields_of(case: Case, name: str) -> dict[str, str]:
    """Without fields, the cheapest case, unless access rules check them."""
    about = REQUESTS.get(case.code)
    return broker_fields(name) if about is not None and about.names else {}


@pytest.fixture(autouse=True)
def _garbage_of_other_tests() -> None:
    """Freeze objects of other tests, whose full collection would take 30 ms; the daemon freezes its own."""
    gc.collect()
    gc.freeze()


@asynccontextmanager
async def attacked(tmp_path: Path, account: str, *, with_tls: bool) -> AsyncIterator[InProcess]:
    """A server with or without TLS that knows the account."""
    settings: dict[str, Any] = {}
    if with_tls:
        settings |= {"tls_mode": "permissive", **Authority(tmp_path).issue("server").server_settings}
        settings |= {"http_listen": "127.0.0.1:0", "http_tls": True}
    if ACCOUNTS[account]:
        file = tmp_path / "access.toml"
        file.write_text(ACCOUNTS[account], encoding="utf-8")
        file.chmod(0o600)
        settings["access"] = str(file)
    async with namesrv_in_process(tmp_path / "data", **settings) as server:
        yield server


@contextmanager
def connected(address: tuple[str, int]) -> Iterator[socket.socket]:
    """A blocking socket, from which a thread sends."""
    with socket.create_connection(address) as peer:
        yield peer


def sending(peer: socket.socket, data: bytes) -> threading.Thread:
    """A thread that sends everything unless the server closes first; it holds no lock while sending."""

    def send() -> None:
        with contextlib.suppress(OSError):
            peer.sendall(data)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


async def longest_computing(server: InProcess, other: RawPeer, peer: socket.socket, data: bytes) -> float:
    """Maximum processor seconds of the loop's thread between a request of the other peer and its response."""
    ping = request_frame(105, {"topic": "T"})
    longest, began, left = 0.0, time.thread_time(), LAST_REQUESTS
    thread = sending(peer, data)
    while left and time.thread_time() - began < CASE_SECONDS:
        left -= not thread.is_alive()
        sent_at = time.thread_time()
        await other.ask(ping)
        longest = max(longest, time.thread_time() - sent_at)
        # responses are read and dropped, because unread ones would slow the flood
        with contextlib.suppress(OSError):
            peer.recv(FLOOD_BYTES, socket.MSG_DONTWAIT)
    # bytes left unread would disturb the next case
    for connection in [one for one in server.namesrv.slots.connections.values() if one.peer.ip == ATTACKER]:
        connection.abort()
    # ends the thread, too
    with contextlib.suppress(OSError):
        peer.shutdown(socket.SHUT_RDWR)
    await asyncio.to_thread(thread.join)
    return longest


async def first_without_stall(measured: Callable[[int], Awaitable[float]]) -> float:
    """The seconds of the first attempt without a stall, or of the last attempt; each gets its number."""
    attempt = 1
    while (seconds := await measured(attempt)) > STALL_SECONDS and attempt < ATTEMPTS:
        attempt += 1
    return seconds


async def opened(server: InProcess, peer: socket.socket, registering: bytes, flood: bytes, *, with_tls: bool) -> bytes:
    """The bytes of a flood, once the peer's broker is registered."""

    def begin() -> bytes:
        if not with_tls:
            peer.sendall(registering)
            assert b'"code":0' in peer.recv(4096)
            return flood
        records = TlsRecords(peer)
        assert b'"code":0' in records.request(registering)
        return records.sealed(flood)

    return await asyncio.to_thread(begin)


@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "tls"])
async def test_no_kind_of_request_stalls_other_peers(tmp_path: Path, account: str, with_tls: bool) -> None:
    """For any pipelined requests of one peer, the loop computes for less than 50 ms before it serves another one."""
    stalls: dict[Case, int] = {}
    async with attacked(tmp_path, account, with_tls=with_tls) as server:
        other = await RawPeer.connect(server.address, source=ELSEWHERE)

        async def measured(case: Case, name: str, attempt: int) -> float:
            name = f"{name}-{attempt}"
            registering = Case(103, "request", "json").frame(
                broker_fields(name), account, body=registration("hostile", "hostile-2")
            )
            frame = case.frame(fields_of(case, name), account)
            flood = frame * (FLOOD_BYTES // len(frame))
            with connected(server.address) as peer:
                flood = await opened(server, peer, registering, flood, with_tls=with_tls)
                return await longest_computing(server, other, peer, flood)

        for number, case in enumerate(cases(account, with_tls=with_tls)):
            seconds = await first_without_stall(partial(measured, case, f"hostile-{number}"))
            if seconds > STALL_SECONDS:
                stalls[case] = round(seconds * 1000)
        other.close()

    assert stalls == {}


@pytest.mark.parametrize("port", ["remoting", "https"])
async def test_key_updates_stall_no_other_peer(tmp_path: Path, port: str) -> None:
    """TLS 1.3 allows a key update in every record of 27 bytes; 8 MiB contain 310,000."""
    async with attacked(tmp_path, "none", with_tls=True) as server:
        other = await RawPeer.connect(server.address, source=ELSEWHERE)
        address = server.address if port == "remoting" else server.controller.http.pages[0]

        async def measured(_attempt: int) -> float:
            with connected(address) as peer:
                records = await asyncio.to_thread(TlsRecords, peer)
                flood = await asyncio.to_thread(records.key_updates, FLOOD_BYTES // KEY_UPDATE_BYTES)
                return await longest_computing(server, other, peer, flood)

        seconds = await first_without_stall(measured)
        other.close()

    assert seconds <= STALL_SECONDS
