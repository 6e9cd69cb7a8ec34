"""What is known of each server when a change is interrupted."""

import asyncio
import socket
from pathlib import Path

import pytest

from namesrv_client.ctl.nameserver import NameServer
from namesrv_client.ctl.running import send_change
from namesrv_client.ctl.servers import Servers
from namesrv_remoting.aio.credentials import SigningSettings
from namesrv_remoting.codes import RequestCode
from tests.support.ctl import one_server, refusing_address


async def test_interrupted_change_names_what_is_known_of_each_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server that did not answer may have made the change; of the others the outcome is known."""
    access = '[accounts.fleet]\nnetworks = ["127.0.0.1"]\nmay = ["route-read"]\n'
    ended = asyncio.Semaphore(0)

    async def put(server: NameServer) -> None:
        try:
            await server.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "ns", "key": "k", "value": "v"})
        finally:
            ended.release()

    with socket.create_server(("127.0.0.1", 0)) as listening, refusing_address() as dead:
        silent = f"127.0.0.1:{listening.getsockname()[1]}"
        async with (
            one_server(tmp_path / "1") as (_, one),
            one_server(tmp_path / "2", access=access) as (_, denying),
            Servers([one, denying, dead, silent], timeout_seconds=60, signing=SigningSettings(), tls=None) as servers,
        ):
            change = asyncio.create_task(send_change(servers, put))
            for _ in (one, denying, dead):
                await ended.acquire()
            change.cancel()
            with pytest.raises(asyncio.CancelledError):
                await change

    lines = [line.removeprefix("namesrvctl: ") for line in capsys.readouterr().err.splitlines()]
    assert lines[0] == f"{one}: done before the interruption"
    assert lines[1].startswith(f"{denying}: refused before the interruption: ")
    assert lines[2].startswith(f"{dead}: not changed: no connection to {dead}")
    assert lines[3:] == [f"{silent}: interrupted; the change may have been made"]
