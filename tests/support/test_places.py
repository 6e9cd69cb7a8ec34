"""A port is one server's at a time, and what was learnt of the one before says nothing about the next."""

import socket
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from namesrv_remoting.aio.server_protocols import PROCESS_PROTOCOLS
from tests.support.daemon import Daemon
from tests.support.dead_ends import refusing_port
from tests.support.in_process import namesrv_in_process
from tests.support.ports import free_port
from tests.support.scripted_server import HOST, ScriptedServer
from tests.support.tcp_proxy import TcpProxy


def learnt_of(port: int) -> str:
    """An address whose last server spoke RocketMQ's protocol."""
    address = f"{HOST}:{port}"
    PROCESS_PROTOCOLS.learn(address, 0.0, is_native=False)
    return address


@pytest.mark.parametrize("kind", ["scripted", "in process"])
async def test_new_server_is_not_taken_for_the_one_before(kind: str, tmp_path: Path) -> None:
    """Clients ask it what it speaks."""
    with refusing_port() as bound:
        address = learnt_of(bound.getsockname()[1])
        served: AbstractAsyncContextManager[Any] = ScriptedServer(bound=bound)
        if kind == "in process":
            address = learnt_of(port := free_port())
            served = namesrv_in_process(tmp_path, listen_port=port)
        async with served:
            assert PROCESS_PROTOCOLS.is_native(address, 0.0) is None


def test_new_process_is_not_taken_for_the_one_before(tmp_path: Path) -> None:
    """The same."""
    address = learnt_of(port := free_port())
    with Daemon(tmp_path, "--listen-port", str(port)) as daemon:
        daemon.listening()
        assert PROCESS_PROTOCOLS.is_native(address, 0.0) is None


async def test_port_of_a_proxy_is_its_own_while_it_is_cut() -> None:
    """Nobody else gets it, and it is back at the same place."""
    async with TcpProxy((HOST, 1)) as proxy:
        proxy.cut()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((HOST, proxy.port))
        await proxy.heal()
        with socket.create_connection((HOST, proxy.port)):
            pass
