"""A NameServer in the test's own process, and a peer of it; `@pytest.mark.settings(NAME=VALUE)` sets it up."""

from collections import ChainMap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import SPELLINGS, NamesrvPeer, Spelling


@pytest.fixture
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[InProcess]:
    """A server that runs until the end of the test, on a clock that the test moves."""
    marks = [mark.kwargs for mark in request.node.iter_markers("settings")]
    async with namesrv_in_process(tmp_path, **dict(ChainMap(*marks))) as server:
        yield server


@pytest.fixture
async def peer(server: InProcess) -> NamesrvPeer:
    """A connection to it."""
    return await server.connect()


@pytest.fixture(params=SPELLINGS)
def spelling(request: pytest.FixtureRequest) -> Spelling:
    """Each header in which a question may be asked, for tests that do not choose."""
    found: Spelling = request.param
    return found
