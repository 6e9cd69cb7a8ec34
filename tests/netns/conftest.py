"""Set-up of every test here: the example of docs/deploying.md, running in network namespaces."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.netns.deployment import Deployment
from tests.netns.network import why_not


@pytest.fixture
def deploy(tmp_path: Path) -> Iterator[Callable[..., Deployment]]:
    """Makes the hosts, with more settings for the NameServers; at the end of the test all of it is gone."""
    if (reason := why_not()) is not None:
        # only what a machine cannot do is left out; what it lacks can be installed
        assert os.geteuid() != 0 or "not allowed" in reason, reason
        pytest.skip(reason)
    with ExitStack() as stack:
        yield lambda *settings: stack.enter_context(Deployment(tmp_path, *settings))
