"""Targets of the coverage-guided fuzzer: each accepts any bytes and may raise only its own error."""

import contextlib
import tempfile
from collections import deque
from collections.abc import Callable, Generator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from namesrv.state.snapshot import decode as decode_snapshot
from namesrv_client.ctl.audit_trail import Trail, sentence
from namesrv_remoting import headers
from namesrv_remoting.access import parse_access_file
from namesrv_remoting.bodies import extensions
from namesrv_remoting.bodies.dialects import JSON, NATIVE
from namesrv_remoting.bodies.extensions import read_events, read_routes
from namesrv_remoting.bodies.limits import RegistrationLimits
from namesrv_remoting.bodies.properties import PropertiesError, parse_properties
from namesrv_remoting.bodies.register import decode_body, decode_native_body
from namesrv_remoting.bodies.route import read_queue_datas, read_route
from namesrv_remoting.errors import BadRequestError, RemoteProtocolError
from namesrv_remoting.frames import FrameReader
from namesrv_remoting.headers import ExtHeader
from namesrv_remoting.serializers import decode_frame
from namesrv_remoting.typed_toml import FileError
from namesrv_runtime.durable_file import SealedFileError, enveloped

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


def _properties(data: bytes) -> dict[str, str]:
    return parse_properties(data.decode(errors="replace"))


_BODY_READERS: Final[list[Callable[[bytes], Any]]] = [
    *(reader for readers in READERS.values() for reader in readers),
    *(read_routes, read_events, read_route, _properties),
]


def _check(error: Exception) -> None:
    """The message must fit into a header and a log line."""
    assert 0 < len(str(error)) < 1024


def frames(data: bytes) -> None:
    """A peer's bytes: frames, their headers and ext fields."""
    try:
        commands = [decode_frame(frame) for frame in FrameReader().receive_data(data)]
    except RemoteProtocolError:
        return
    for command in commands:
        for header in HEADERS:
            try:
                header.from_ext(command.ext_fields)
            except BadRequestError as error:
                _check(error)


def bodies(data: bytes) -> None:
    """The first byte chooses the reader of the rest."""
    read = _BODY_READERS[data[0] % len(_BODY_READERS)] if data else _BODY_READERS[0]
    try:
        found = read(data[1:])
        if isinstance(found, Generator):
            deque(found, maxlen=0)
    except (BadRequestError, RemoteProtocolError, PropertiesError) as error:
        _check(error)


def snapshot(data: bytes) -> None:
    """A snapshot file, as it is and with a valid checksum, so that its content is read, too."""
    for file in (data, enveloped(data)):
        try:
            decode_snapshot(file)
        except SealedFileError as error:
            _check(error)


def access_file(data: bytes) -> None:
    """An access file with any content."""
    with contextlib.suppress(FileError, UnicodeDecodeError):
        parse_access_file(data.decode())


def log_lines(data: bytes) -> None:
    """A damaged file of JSON lines: readable lines are shown, the others are reported."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:
        folder = Path(directory) / "dt=2026-01-01" / "hour=00"
        folder.mkdir(parents=True)
        (folder / "ns1-b00t-1.jsonl.open").write_bytes(data)
        trail = Trail(Path(directory))
        shown = [sentence(line) for line in trail.news()]
        assert len(shown) + len(trail.problems) <= data.count(b"\n")


TARGETS: Final[Mapping[str, Callable[[bytes], None]]] = {
    "frames": frames,
    "bodies": bodies,
    "snapshot": snapshot,
    "access-file": access_file,
    "log-lines": log_lines,
}
