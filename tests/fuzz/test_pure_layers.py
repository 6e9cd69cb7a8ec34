"""Fuzzing every reader of the wire: only its own exception is raised."""

from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from itertools import chain
from typing import Any, Final

import pytest

from namesrv.net.proxy_header import V2_PREFIX, read_proxy_header
from namesrv_remoting import headers
from namesrv_remoting.bodies import extensions
from namesrv_remoting.bodies.dialects import JSON, NATIVE
from namesrv_remoting.bodies.limits import RegistrationLimits
from namesrv_remoting.bodies.register import decode_body, decode_native_body
from namesrv_remoting.bodies.route import read_queue_datas
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import BadRequestError, RemoteProtocolError
from namesrv_remoting.frames import Frame, FrameReader
from namesrv_remoting.headers import ExtHeader
from namesrv_remoting.serializers import decode_frame, encode_command
from tests.fuzz.budget import FRAMES, fuzzed
from tests.fuzz.frames import make
from tests.fuzz.mutations import Dice, mutate
from tests.support.steps import finished

WANTED: Final = FRAMES // 10
HEADERS: Final = [
    header
    for header in vars(headers).values()
    if isinstance(header, type) and issubclass(header, ExtHeader) and header is not ExtHeader
]
LIMITS: Final = RegistrationLimits(max_inflated_bytes=1 << 20)
# readers of bodies, with each combination of their arguments
READERS: Final[dict[str, list[Callable[[bytes], Any]]]] = {
    **{
        f"registrations, compressed={compressed}": [
            *(
                partial(decode_body, version=version, compressed=compressed, limits=LIMITS)
                for version in (36, 400, 479)
            ),
            partial(decode_native_body, compressed=compressed, limits=LIMITS),
        ]
        for compressed in (False, True)
    },
    "small bodies": [
        JSON.read_data_version,
        NATIVE.read_data_version,
        partial(read_queue_datas, JSON),
        partial(read_queue_datas, NATIVE),
        *(body.read for body in extensions.RequestBody.__subclasses__()),
        extensions.pull_in_steps,
        extensions.heartbeat_state,
    ],
}
PROXY_HEADERS: Final = (
    b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 9876\r\n",
    b"PROXY TCP6 2001:db8::1 2001:db8::2 56324 9876\r\n",
    b"PROXY UNKNOWN\r\n",
    V2_PREFIX + b"\x21\x11\x00\x0c" + bytes(12),
    V2_PREFIX + b"\x21\x21\x00\x24" + bytes(36),
    V2_PREFIX + b"\x20\x00\x00\x00",
)


def frames_of(number: int) -> list[Frame]:
    """The frames in the number's bytes."""
    return FrameReader().receive_data(make(number))


def commands_of(number: int) -> list[RemotingCommand]:
    """The commands in the number's bytes."""
    try:
        return [decode_frame(frame) for frame in frames_of(number)]
    except RemoteProtocolError:
        return []


@fuzzed(WANTED)
def test_frame_reader_does_not_depend_on_splitting(numbers: tuple[int, ...]) -> None:
    """Frames, error and buffered bytes are the same for one, several and single-byte pieces."""

    def fed(data: bytes, cuts: list[int]) -> tuple[list[Frame], str, int]:
        reader = FrameReader()
        frames = []
        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            frames += reader.receive_data(data[start:end])
        return frames, repr(reader.error), reader.is_inside_frame

    for at in range(0, len(numbers), 4):
        dice = Dice(numbers[at])
        data = b"".join(make(number) for number in numbers[at : at + 4])
        at_once = fed(data, [])
        assert at_once == fed(data, sorted(dice.upto(len(data)) for _ in range(dice.upto(9))))
        if len(data) < 600:
            assert at_once == fed(data, list(range(1, len(data))))


@fuzzed(WANTED)
def test_headers_are_read_or_refused(numbers: tuple[int, ...]) -> None:
    """Only a RemoteProtocolError is raised; a decoded command can be answered and quoted in a remark."""
    for command in chain.from_iterable(map(commands_of, numbers)):
        for serialize_type in (0, 77):
            remark = command.remark and command.remark[:1024]
            echoed = RemotingCommand(
                command.code,
                command.opaque,
                remark=remark,
                ext_fields=command.ext_fields,
                serialize_type=serialize_type,
            )
            [frame] = FrameReader(max_header_bytes=1 << 24).receive_data(encode_command(echoed))
            assert (command.opaque or 0) == decode_frame(frame).opaque


@pytest.mark.parametrize("name", READERS)
@fuzzed(WANTED)
def test_bodies_are_read_or_refused(name: str, numbers: tuple[int, ...]) -> None:
    """Only a BadRequestError is raised for any header, with a text that fits into a header and a log line."""
    for frame in chain.from_iterable(map(frames_of, numbers)):
        for read in READERS[name]:
            refusal = ""
            try:
                found = read(frame.body)
                if isinstance(found, Generator):
                    deque(found, maxlen=0)
            except BadRequestError as error:
                refusal = str(error)
            assert len(refusal) < 1024


# each is read in sixteen ways
@fuzzed(WANTED // 2)
def test_ext_fields_are_read_or_refused_by_name(numbers: tuple[int, ...]) -> None:
    """Only a BadRequestError with a short remark is raised for the fields of each request and response."""
    for command in chain.from_iterable(map(commands_of, numbers)):
        for header in HEADERS:
            try:
                header.from_ext(command.ext_fields)
            except BadRequestError as error:
                assert len(str(error)) < 1024  # noqa: PT017 - both outcomes are right


@fuzzed(WANTED)
def test_proxy_headers_are_read_or_refused(numbers: tuple[int, ...]) -> None:
    """Only a RemoteProtocolError is raised, and a prefix never gives another result than the whole."""

    def read(data: bytes) -> object:
        try:
            return read_proxy_header(data)
        except RemoteProtocolError as error:
            return str(error)

    for number in numbers:
        dice = Dice(number)
        data = mutate(dice.pick(PROXY_HEADERS), make(number), dice)
        found = [read(data[:size]) for size in range(1, len(data) + 1)]
        assert len({repr(what) for what in found if what is not None}) <= 1


def test_most_generated_frames_are_readable() -> None:
    """Otherwise the code behind the readers would not be tested."""
    frames = [frame for number in range(1, 3_000) for frame in frames_of(number)]
    commands = [command for number in range(1, 3_000) for command in commands_of(number)]
    registrations = [command for command in commands if command.code == 103]

    def is_read(command: RemotingCommand) -> bool:
        compressed = (command.ext_fields or {}).get("compressed") == "true"
        try:
            if command.is_native:
                finished(decode_native_body(command.body, compressed=compressed))
            else:
                finished(decode_body(command.body, command.version, compressed=compressed))
        except BadRequestError:
            return False
        return True

    assert len(commands) > len(frames) * 0.7
    assert sum(map(is_read, registrations)) > len(registrations) * 0.4
