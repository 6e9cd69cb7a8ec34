"""Fixtures: the example of docs/deploying.md in network namespaces."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.netns.deployment import Deployment
from tests.netns.network import why_not


@pytest.fixture
def deploy(tmp_path: Path) -> Iterator[Callable[..., Deployment]]:
    """A function that makes the hosts, with additional NameServer settings; they are removed at the end of the test."""
    if (reason := why_not()) is not None:
        # Only missing privileges skip the tests, since missing packages can be installed.
        assert os.geteuid() != 0 or "not allowed" in reason, reason
        pytest.skip(reason)
    with ExitStack() as stack:
        yield lambda *settings: stack.enter_context(Deployment(tmp_path, *settings))
