"""The examples on the first pages of the APIs run."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from namesrv_broker_agent import AgentSettings, SyncBrokerAgent, TopicConfig
from tests.support.daemon import Daemon
from tests.support.pages import example
from tests.support.tutorial import BIN


@pytest.mark.slow
def test_examples_run(tmp_path: Path) -> None:
    """A broker registers, and a client and a hand-made request find its topic."""
    with ExitStack() as stack:
        daemon = stack.enter_context(Daemon(tmp_path / "data"))
        settings = AgentSettings(
            cluster_name="c1", broker_name="broker-b", broker_addr="127.0.0.1:10912", name_servers=daemon.where
        )
        broker = stack.enter_context(SyncBrokerAgent(settings, [TopicConfig("orders", 4, 4)]))
        broker.registered()
        expected = {"agent": "registered with 1", "client": "c1 broker-b 127.0.0.1:10912", "wire": "brokerDatas"}
        for name, printed in expected.items():
            program = example(f"docs/api/{name}.md", f"{name}.py").replace("127.0.0.1:9876", daemon.where)
            (tmp_path / f"{name}.py").write_text(program)
            done = subprocess.run(
                [sys.executable, f"{name}.py"], cwd=tmp_path, capture_output=True, text=True, check=False
            )
            assert printed in done.stdout, done.stderr


@pytest.mark.slow
def test_example_of_the_test_kit_passes(tmp_path: Path) -> None:
    """The example runs in a separate project."""
    (tmp_path / "test_failover.py").write_text(example("docs/api/testing.md", "test_failover.py"))
    done = subprocess.run(
        [BIN / "pytest", "-q", "--rootdir", ".", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
