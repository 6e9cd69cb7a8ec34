"""A NameServer in the test process, with settings of `@pytest.mark.settings(NAME=VALUE)`, and a peer."""

from collections import ChainMap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import SPELLINGS, NamesrvPeer, Spelling


@pytest.fixture
def settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Settings of the server, by default those of the marks; a module adds its own by overriding this fixture."""
    return dict(ChainMap(*[mark.kwargs for mark in request.node.iter_markers("settings")]))


@pytest.fixture
async def server(settings: dict[str, Any], tmp_path: Path) -> AsyncIterator[InProcess]:
    """A server on a fake clock that runs until the end of the test."""
    async with namesrv_in_process(tmp_path, **settings) as server:
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
