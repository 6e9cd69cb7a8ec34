"""The README's quick start, command by command, on a free port."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemon import Daemon
from tests.support.pages import ROOT, Block, blocks
from tests.support.printing_process import PrintingProcess

BIN = Path(sys.executable).parent


def block_with(language: str, word: str) -> Block:
    """The README's block in this language that contains the word."""
    (found,) = [block for block in blocks(ROOT / "README.md") if block.language == language and word in block.text]
    return found


@pytest.mark.slow
def test_quick_start_works_as_written(tmp_path: Path) -> None:
    """A broker is registered, every command shows it, and `watch` reports at once that it has left."""
    with Daemon(tmp_path / "data") as daemon:
        address = "{}:{}".format(*daemon.listening().address)
        ours = {name: value for name, value in os.environ.items() if not name.startswith("NAMESRV_")}
        environ = {**ours, "NAMESRV_ADDR": address, "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}

        (start_agent,) = block_with("sh", "namesrv-broker-agent").text.splitlines()
        program, option, config = start_agent.split()
        example = (ROOT / config).read_text().replace("127.0.0.1:9876", address)
        (tmp_path / "agent.toml").write_text(example)
        with PrintingProcess(str(BIN / Path(program).name), option, str(tmp_path / "agent.toml")) as agent:
            daemon.wait_for("broker_registered", broker_name="broker-a")

            brokers, route, watch = block_with("sh", "namesrvctl").text.splitlines()
            for text in (brokers, route):
                program, *words = text.split()
                output = subprocess.run(
                    [BIN / Path(program).name, *words], env=environ, capture_output=True, text=True, check=True
                ).stdout
                assert re.search(r"broker-a.*127\.0\.0\.1:10911", output), output

            source = block_with("python", "RouteClient").text.replace("127.0.0.1:9876", address)
            found = subprocess.run(
                [sys.executable, "-c", source], env=environ, capture_output=True, text=True, check=True
            )
            assert "broker-a" in found.stdout

            program, *words = watch.split()
            with PrintingProcess(str(BIN / Path(program).name), *words, **environ) as watching:
                watching.wait_for("broker-a")
                agent.send_signal(signal.SIGINT)
                watching.wait_for("orders +vanished")
