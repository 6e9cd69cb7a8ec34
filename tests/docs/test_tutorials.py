"""The tutorials work: their commands run, and the output has the form shown on the page.

The tutorial about Apache's NameServers is run by tests/interop/test_replacing_one.py.
"""

import re
import signal
import subprocess
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from tests.support.daemon import Daemon
from tests.support.ports import free_port
from tests.support.printing_process import PatternProcess
from tests.support.tutorial import BIN, Reader

DEAD_BROKER: Final = "docs/tutorials/dead-broker.md"
EMBED_AGENT: Final = "docs/tutorials/embed-agent.md"


@pytest.mark.slow
def test_code_passes_a_strict_type_checker(tmp_path: Path) -> None:
    """The Python of the tutorials and of the APIs' first pages passes mypy --strict in a project of its own."""
    blocks = {
        f"{page.stem.replace('-', '_')}_{number}.py": block
        for folder in ("docs/tutorials", "docs/api")
        for page in sorted(Path(folder).glob("*.md"))
        for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE))
    }
    assert len(blocks) >= 3
    for name, block in blocks.items():
        (tmp_path / name).write_text(block)

    checked = subprocess.run(
        [BIN / "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path / 'cache'}", *sorted(blocks)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert checked.stdout == f"Success: no issues found in {len(blocks)} source files\n"


@pytest.mark.slow
def test_dead_broker(tmp_path: Path) -> None:
    """The tutorial leads from the symptom to the setting that prevents it."""
    reader = Reader(tmp_path, DEAD_BROKER, {"19876": str(free_port()), "/home/me": str(tmp_path)})
    (tmp_path / "incident.py").write_text(reader.text("incident.py"))
    program, *words = reader.text("run-incident").split()
    with PatternProcess([BIN / program, *words], home=tmp_path) as incident:
        incident.wait_for("broker-a hangs")
        reader.sees("explain")
        incident.write_line("")
        assert incident.wait() == 0, incident.printed()

    history = reader.sees("history")
    (evicted,) = re.findall(r"^(\S+ \S+) .*-broker-a", history, re.MULTILINE)
    # Right after the eviction: later the client polls, and has another route.
    at = datetime.fromisoformat(evicted) + timedelta(milliseconds=1)
    after = Reader(tmp_path, DEAD_BROKER, {"2026-11-22T19:35:11": at.isoformat()})
    after.sees("at")
    reader.sees("report")
    reader.sees("what-if")


@pytest.mark.slow
def test_embed_agent(tmp_path: Path) -> None:
    """A broker registers, gets a new topic, drains and unregisters."""
    with Daemon(tmp_path / "data") as daemon:
        reader = Reader(tmp_path, EMBED_AGENT, {"127.0.0.1:9876": daemon.where, "10911": str(free_port())})
        (tmp_path / "broker.py").write_text(reader.text("broker.py"))
        program, *words = reader.text("start").split()
        with PatternProcess([BIN / program, *words], home=tmp_path) as broker:
            broker.wait_for(re.escape(reader.text("start.output").strip()))
            reader.sees("route")
            reader.sees("produce")
            broker.send_signal(signal.SIGTERM)
            broker.wait_for(reader.text("stop.output").strip())
            assert broker.wait() == 0, broker.printed()
        reader.sees("gone")
