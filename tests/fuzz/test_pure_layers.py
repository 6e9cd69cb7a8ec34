"""Every reader of the wire raises only its own exception, whatever it is given."""

from collections import deque
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any, Final

import pytest

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
from namesrv_remoting.proxy_header import V2_PREFIX, read_proxy_header
from namesrv_remoting.serializers import decode_frame, encode_command
from tests.fuzz.budget import FRAMES, GOLDEN, Counted, in_batches
from tests.fuzz.frames import FrameMaker, recorded_frames
from tests.fuzz.mutations import mutate
from tests.fuzz.values import Dice

WANTED: Final = FRAMES // 10
MAKER: Final = FrameMaker(recorded_frames(GOLDEN))
HEADERS: Final = [
    header
    for header in vars(headers).values()
    if isinstance(header, type) and issubclass(header, ExtHeader) and header is not ExtHeader
]
LIMITS: Final = RegistrationLimits(max_inflated_bytes=1 << 20)
SMALL_BODIES: Final[list[Callable[[bytes], Any]]] = [
    JSON.read_data_version,
    partial(read_queue_datas, JSON),
    NATIVE.read_data_version,
    partial(read_queue_datas, NATIVE),
    *(question.read for question in extensions.Question.__subclasses__()),
    extensions.heartbeat_state,
]


def frames_of(numbers: tuple[int, ...]) -> Iterator[Frame]:
    """Everything that is cut from what the numbers make."""
    for number in numbers:
        yield from FrameReader().receive_data(MAKER.make(number))


def commands_of(numbers: tuple[int, ...]) -> Iterator[RemotingCommand]:
    """Everything that can be read of it."""
    for frame in frames_of(numbers):
        try:
            yield decode_frame(frame)
        except RemoteProtocolError:
            continue


def test_chopping_makes_no_difference_to_the_frame_reader() -> None:
    """The same frames, the same error and the same bytes held back, whether fed at once, in pieces or by the byte."""
    counted = Counted()

    def fed(data: bytes, cuts: list[int]) -> tuple[list[Frame], str, int]:
        reader = FrameReader()
        frames = []
        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            frames += reader.receive_data(data[start:end])
        return frames, repr(reader.error), reader.is_inside_frame

    def batch(numbers: tuple[int, ...]) -> None:
        for at in range(0, len(numbers), 4):
            dice = Dice(numbers[at])
            data = b"".join(MAKER.make(number) for number in numbers[at : at + 4])
            at_once = fed(data, [])
            assert at_once == fed(data, sorted(dice.upto(len(data)) for _ in range(dice.upto(9))))
            if len(data) < 600:
                assert at_once == fed(data, list(range(1, len(data))))
            counted.frames += 4

    in_batches(WANTED, batch)
    assert counted.enough(WANTED, "frames cut")


def test_headers_are_read_or_refused() -> None:
    """Only with RemoteProtocolError; and whatever was read can be answered, and echoed in a remark."""
    counted = Counted()

    def batch(numbers: tuple[int, ...]) -> None:
        for number in numbers:
            counted.frames += 1
            for command in commands_of((number,)):
                for serialize_type in (0, 77):
                    echoed = RemotingCommand(
                        code=command.code,
                        opaque=command.opaque,
                        remark=command.remark and command.remark[:1024],
                        ext_fields=command.ext_fields,
                        serialize_type=serialize_type,
                    )
                    [frame] = FrameReader(max_header_bytes=1 << 24).receive_data(encode_command(echoed))
                    assert (command.opaque or 0) == decode_frame(frame).opaque

    in_batches(WANTED, batch)
    assert counted.enough(WANTED, "headers")


@pytest.mark.parametrize("compressed", [False, True])
def test_registrations_are_read_or_refused(compressed: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Only with BadRequestError, in every version's form and natively, whatever the header announced."""
    counted = Counted()

    def batch(numbers: tuple[int, ...]) -> None:
        for number in numbers:
            counted.frames += 1
            for frame in frames_of((number,)):
                for version in (36, 400, 479):
                    _allow(decode_body, frame.body, version, compressed=compressed, limits=LIMITS)
                _allow(decode_native_body, frame.body, compressed=compressed, limits=LIMITS)

    in_batches(WANTED, batch)
    assert counted.enough(WANTED, "registrations")


def test_small_bodies_are_read_or_refused() -> None:
    """Only with BadRequestError."""
    counted = Counted()

    def batch(numbers: tuple[int, ...]) -> None:
        for number in numbers:
            counted.frames += 1
            for frame in frames_of((number,)):
                for read in SMALL_BODIES:
                    _allow(read, frame.body)

    in_batches(WANTED, batch)
    assert counted.enough(WANTED, "bodies")


def test_ext_fields_are_read_or_refused_by_name() -> None:
    """Only with BadRequestError whose remark is short enough for a header; for each request's and answer's fields."""
    counted = Counted()

    def batch(numbers: tuple[int, ...]) -> None:
        for number in numbers:
            counted.frames += 1
            for command in commands_of((number,)):
                for header in HEADERS:
                    _allow(header.from_ext, command.ext_fields)

    # each is read in sixteen ways
    in_batches(WANTED // 2, batch)
    assert counted.enough(WANTED // 2, "maps of ext fields")


def test_proxy_headers_are_read_or_refused() -> None:
    """Only with RemoteProtocolError; and the first bytes alone never say something else than all of them."""
    counted = Counted()
    whole = (
        b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 9876\r\n",
        b"PROXY TCP6 2001:db8::1 2001:db8::2 56324 9876\r\n",
        b"PROXY UNKNOWN\r\n",
        V2_PREFIX + b"\x21\x11\x00\x0c" + bytes(12),
        V2_PREFIX + b"\x21\x21\x00\x24" + bytes(36),
        V2_PREFIX + b"\x20\x00\x00\x00",
    )

    def read(data: bytes) -> object:
        try:
            return read_proxy_header(data)
        except RemoteProtocolError as error:
            return str(error)

    def batch(numbers: tuple[int, ...]) -> None:
        for number in numbers:
            counted.frames += 1
            dice = Dice(number)
            header = dice.pick(whole)
            data = mutate(header, MAKER.make(number), dice)
            found = [read(data[:size]) for size in range(1, len(data) + 1)]
            assert len({repr(what) for what in found if what is not None}) <= 1

    in_batches(WANTED, batch)
    assert counted.enough(WANTED, "PROXY headers")


def _allow(read: Callable[..., object], *args: object, **limits: object) -> None:
    """Nothing but BadRequestError; its text travels in a header, and ends up in a log."""
    refusal = ""
    try:
        found = read(*args, **limits)
        if isinstance(found, Generator):
            deque(found, maxlen=0)
    except BadRequestError as error:
        refusal = str(error)
    assert len(refusal) < 1024
