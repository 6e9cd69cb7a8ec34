"""The tutorials do what they say: their commands are run, and what they print has the form that the page shows."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.daemon import Daemon
from tests.support.pages import example
from tests.support.talking_process import PatternProcess

BIN: Final = Path(sys.executable).parent
DEAD_BROKER: Final = "docs/tutorials/dead-broker.md"
EMBED_AGENT: Final = "docs/tutorials/embed-agent.md"


def form(text: str) -> str:
    """What a program printed, whatever the time, the host and the figures are."""
    text = text.replace(socket.gethostname(), "ns1")
    text = re.sub(r"\b\d+(\.\d+)? m?s\b|\b\d+ [hm]( \d+ [ms])?\b", "TIME", text)
    return re.sub(r"[\s-]+", " ", re.sub(r"\d+", "0", text)).strip()


class Reader:
    """Who follows a tutorial, in a directory of its own and with a port of its own."""

    def __init__(self, directory: Path, page: str, stand_ins: dict[str, str]) -> None:
        self.directory = directory
        self._page = page
        self._stand_ins = stand_ins
        self.environ = {"PATH": os.pathsep.join((str(BIN), os.environ["PATH"])), "COLUMNS": "200"}

    def text(self, name: str) -> str:
        """A block of the page."""
        text = example(self._page, name)
        for written, meant in self._stand_ins.items():
            text = text.replace(written, meant)
        return text

    def does(self, name: str) -> str:
        """Run the commands of a block; what they printed, which has the form that the page shows, if it shows any."""
        done = subprocess.run(
            ["sh", "-euc", self.text(name)],
            cwd=self.directory,
            env={**os.environ, **self.environ},
            capture_output=True,
            text=True,
            check=False,
        )
        assert 0 == done.returncode, done.stdout + done.stderr
        return done.stdout

    def sees(self, name: str) -> str:
        """Run a block; what it prints holds the block `NAME.output`, but for figures."""
        printed = self.does(name)
        assert form(self.text(f"{name}.output")) in form(printed), printed
        return printed


def free_port() -> str:
    """One that nobody has now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return str(taken.getsockname()[1])


@pytest.mark.slow
def test_dead_broker(tmp_path: Path) -> None:
    """From the complaint to the setting that would have helped."""
    reader = Reader(tmp_path, DEAD_BROKER, {"19876": free_port()})
    (tmp_path / "incident.py").write_text(reader.text("incident.py"))
    program, *words = reader.text("run-incident").split()
    with PatternProcess([BIN / program, *words], home=tmp_path) as incident:
        incident.wait_for("broker-a hangs")
        reader.sees("explain")
        incident.tell("")
        assert 0 == incident.wait(), incident.printed()

    history = reader.sees("history")
    (evicted,) = re.findall(r"^(\S+) (\d\d:\d\d:\d\d)\S* .*-broker-a", history, re.MULTILINE)
    after = Reader(tmp_path, DEAD_BROKER, {"2026-11-22T19:35:11": f"{evicted[0]}T{evicted[1]}.999"})
    after.sees("at")
    reader.sees("report")
    reader.sees("what-if")


@pytest.mark.slow
def test_embed_agent(tmp_path: Path) -> None:
    """A broker registers, has a new topic, drains and leaves."""
    with Daemon(tmp_path / "data") as daemon:
        reader = Reader(tmp_path, EMBED_AGENT, {"127.0.0.1:9876": daemon.where, "10911": free_port()})
        (tmp_path / "broker.py").write_text(reader.text("broker.py"))
        program, *words = reader.text("start").split()
        with PatternProcess([BIN / program, *words], home=tmp_path) as broker:
            broker.wait_for(re.escape(reader.text("start.output").strip()))
            reader.sees("route")
            reader.sees("produce")
            broker.send_signal(signal.SIGTERM)
            broker.wait_for(reader.text("stop.output").strip())
            assert 0 == broker.wait(), broker.printed()
        reader.sees("gone")
