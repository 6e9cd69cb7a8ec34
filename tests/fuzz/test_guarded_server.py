"""Fuzzing a server with an access file: no forged request has an effect."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any, Final

from namesrv_remoting.codes import FLAG_ONEWAY
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import RemotingError
from namesrv_remoting.frames import FrameReader
from namesrv_remoting.requests import REQUESTS, AccessClass
from namesrv_remoting.serializers import decode_frame, encode_command
from namesrv_remoting.signatures import ACCESS_KEY, NATIVE_SIGNATURE, NONCE, SIGNATURE, SIGNED_AT
from tests.fuzz.budget import FRAMES
from tests.fuzz.frames import HOSTILE_TEXTS, request
from tests.fuzz.mutations import Dice
from tests.namesrv.access.test_matrix import state
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import Broker, registration
from tests.support.signing import Key, Recipe

MOST_BYTES: Final = 32 * 1024
# longer ones are refused with their connection
SHORT_TEXTS: Final = [text for text in HOSTILE_TEXTS if len(text) < MOST_BYTES]
NO_PERMISSION: Final = 16
FILE: Final = """
[accounts.operator]
secrets = ["operator-secret"]
may = ["route-read", "broker-control", "admin-read", "admin-write"]

[accounts.idle]
secrets = ["idle-secret"]
may = []
"""
OPERATOR, IDLE = Key("operator", "operator-secret"), Key("idle", "idle-secret")
ADMIN: Final = (AccessClass.ADMIN_READ, AccessClass.ADMIN_WRITE)


def commands() -> Iterator[RemotingCommand]:
    """Requests that a server can read; none has the response flag."""
    for seed in count():
        dice = Dice(seed)
        try:
            (frame,) = FrameReader().receive_data(request(dice))
            command = replace(decode_frame(frame), flag=FLAG_ONEWAY if dice.one_in(8) else 0)
            if len(encode_command(command)) <= MOST_BYTES and command.opaque is not None:
                yield forged(command, dice)
        except (RemotingError, ValueError):
            continue


def forged(command: RemotingCommand, dice: Dice) -> RemotingCommand:
    """The request without a signature or with an invalid one."""
    about = REQUESTS.get(command.code)
    recipe: Recipe = "native" if dice.one_in(2) else "rocketmq"
    match dice.upto(5):
        case 0:
            return command
        case 1:
            names = [name for name in (ACCESS_KEY, SIGNATURE, NATIVE_SIGNATURE, SIGNED_AT, NONCE) if dice.one_in(2)]
            fields = {name: dice.pick((*SHORT_TEXTS, "operator", "1700000000000")) for name in names}
            return replace(command, ext_fields={**(command.ext_fields or {}), **fields})
        case 2 if about is None or about.access_class is not AccessClass.ANY_ACCOUNT:
            return IDLE._replace(recipe=recipe).signed(command)
        case 3 if about is None or about.access_class in ADMIN:
            return OPERATOR._replace(recipe="rocketmq").signed(command)
        case 4:
            changed: dict[str, Any] = dice.pick(
                ({"body": command.body + b"\0"}, {"opaque": ~(command.opaque or 0)}, {"version": 478})
            )
            return replace(OPERATOR.signed(command), **changed)
        case _:
            return OPERATOR._replace(secret="operator-secreT", recipe=recipe).signed(command)


async def test_no_frame_gets_past_the_access_file(tmp_path: Path) -> None:
    """Every request gets code 16, or no response if it is oneway, and the tables stay the same."""
    access = tmp_path / "access.toml"
    access.write_text(FILE)
    async with namesrv_in_process(tmp_path / "data", access=str(access)) as server:
        owner, peer = await server.connect(), await server.connect()
        owner.send(OPERATOR.request_frame(103, Broker().ext, registration("t0", "t1")))
        assert (await owner.receive()).code == 0
        before = state(server)
        for command in islice(commands(), FRAMES // 50):
            peer.send(encode_command(command))
            if not command.is_oneway:
                answer = await peer.receive()
                assert (NO_PERMISSION, command.opaque) == (answer.code, answer.opaque), command
        # after the last oneway request
        assert (await peer.call(105, {"topic": "t0"})).code == NO_PERMISSION
        assert before == state(server)
