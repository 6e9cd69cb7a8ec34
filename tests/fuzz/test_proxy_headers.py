"""Fuzzing the reader of PROXY headers; test_fuzz_corpus.py and test_whole_server.py fuzz the other readers."""

from typing import Final

from namesrv.net.proxy_header import V2_PREFIX, read_proxy_header
from namesrv_remoting.errors import RemoteProtocolError
from tests.fuzz.budget import FRAMES, fuzzed
from tests.fuzz.frames import make
from tests.fuzz.mutations import Dice, mutate

WANTED: Final = FRAMES // 10
PROXY_HEADERS: Final = (
    b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 9876\r\n",
    b"PROXY TCP6 2001:db8::1 2001:db8::2 56324 9876\r\n",
    b"PROXY UNKNOWN\r\n",
    V2_PREFIX + b"\x21\x11\x00\x0c" + bytes(12),
    V2_PREFIX + b"\x21\x21\x00\x24" + bytes(36),
    V2_PREFIX + b"\x20\x00\x00\x00",
)


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
