"""Frames are received or refused by their headers."""

from dataclasses import replace

import pytest

from namesrv.net.header_checks import check_header
from namesrv_remoting.errors import RemoteProtocolError
from tests.support.serving import LIMITS

SMALL = 64
LIMITS_HERE = replace(LIMITS, small_frame_bytes=SMALL, max_frame_bytes=1024, max_connections=6, reserved_connections=4)


@pytest.mark.parametrize(("size", "largest"), [(SMALL, 0), (SMALL, 1), (100, 100), (1024, 4096)])
def test_frames_up_to_the_limit_of_their_request_are_received(size: int, largest: int) -> None:
    """Small frames are received for every request, larger ones up to the limit of their request."""
    check_header(103, size, LIMITS_HERE, largest_frame_bytes=largest, may_use_slot=True)


@pytest.mark.parametrize(("size", "largest", "bound"), [(65, 0, 64), (101, 100, 100), (1025, 4096, 1024)])
def test_larger_frames_are_refused(size: int, largest: int, bound: int) -> None:
    """The limit is that of the request, but never below a small frame nor above the largest frame of the server."""
    with pytest.raises(RemoteProtocolError, match=f"frame of {size} bytes for request 103, limit {bound}") as refused:
        check_header(103, size, LIMITS_HERE, largest_frame_bytes=largest, may_use_slot=True)
    assert refused.value.reason == "frame_too_large"
