"""A NameServer in the test process, with settings of `@pytest.mark.settings(NAME=VALUE)`, and a peer."""

from collections import ChainMap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import SPELLINGS, NamesrvPeer, Spelling


@pytest.fixture
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[InProcess]:
    """A server on a fake clock that runs until the end of the test."""
    marks = [mark.kwargs for mark in request.node.iter_markers("settings")]
    async with namesrv_in_process(tmp_path, **dict(ChainMap(*marks))) as server:
        yield server


@pytest.fixture
async def peer(server: InProcess) -> NamesrvPeer:
    """A connection to the server."""
    return await server.connect()


@pytest.fixture(params=SPELLINGS)
def spelling(request: pytest.FixtureRequest) -> Spelling:
    """Each serialization of a request, for tests of all of them."""
    found: Spelling = request.param
    return found
