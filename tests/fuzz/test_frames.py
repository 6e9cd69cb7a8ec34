"""Fuzzed frames follow the table of requests."""

import msgspec
import pytest

from namesrv_remoting.headers import ExtHeader
from namesrv_remoting.requests import REQUESTS
from tests.fuzz.frames import FIELDS


@pytest.mark.parametrize(
    ("code", "header"),
    [(code, kind.header) for code, kind in REQUESTS.items() if kind.header is not None and kind.sender != "server"],
)
def test_fuzzed_requests_have_each_field_of_their_header(code: int, header: type[ExtHeader]) -> None:
    """A field without values here would never be fuzzed."""
    declared = {field.encode_name for field in msgspec.structs.fields(header)} - {"compressed"}

    assert declared - {name.removeprefix("?") for name in FIELDS.get(code, {})} == set()
