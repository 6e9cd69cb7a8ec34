"""A client with credentials signs every request."""

import asyncio

import pytest

from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.aio.credentials import Credentials
from namesrv_remoting.codes import SerializeType
from namesrv_remoting.frames import Frame
from namesrv_remoting.serializers import decode_frame
from namesrv_remoting.signatures import Recipe, Signer, Verifier
from tests.support.fake_clock import FakeClock
from tests.support.scripted_server import ScriptedServer


@pytest.mark.parametrize(
    ("serialize_type", "recipe"),
    [
        (SerializeType.JSON, Recipe.ROCKETMQ),
        (SerializeType.ROCKETMQ, Recipe.ROCKETMQ),
        (SerializeType.MSGPACK, Recipe.NATIVE),
    ],
)
async def test_requests_are_signed_as_they_are_sent(serialize_type: SerializeType, recipe: Recipe) -> None:
    """Requests and oneway requests are signed in each protocol, with their own number."""
    clock = FakeClock()
    verifier = Verifier({"k": [b"secret"]}.__getitem__, wall=clock.wall)
    credentials = Credentials("k", b"secret", clock.wall)
    async with (
        ScriptedServer() as server,
        RemotingClient(server.address, clock=clock, credentials=credentials) as client,
    ):
        fields = {"topic": "T\u00e9", "empty": "" if serialize_type != SerializeType.ROCKETMQ else "-"}
        for _ in range(2):
            await client.oneway(105, ext_fields=fields, body=b"b", timeout_seconds=3.0, serialize_type=serialize_type)
        asking = asyncio.create_task(client.invoke(105, timeout_seconds=3.0, serialize_type=serialize_type))
        peer = await server.accept()
        signers = [verifier.verify(decode_frame(Frame(*await peer.receive_frame()))) for _ in range(3)]
        asking.cancel()

    assert signers == [Signer("k", recipe)] * 3
