"""The benchmarks' command lines."""

import subprocess
import sys

import pytest

from benchmarks import __main__ as bench
from benchmarks.abuse.attacks import ATTACKS
from benchmarks.peers.__main__ import QUESTIONS as OF_PEERS
from benchmarks.servers import ROOT

QUESTIONS = {
    "benchmarks": [
        *("pulls", "heartbeats", "heartbeat_log", "registration", "registration_cost", "eviction", "memory"),
        *("connections", "herd", "rolling", "profiles", "tls", "scrapes", "startup", "agents", "client"),
        *("staleness", "console"),
    ],
    "benchmarks.peers": ["work", "two_cores", "startup", "registration", "memory"],
    "benchmarks.abuse": list(ATTACKS),
}


@pytest.mark.parametrize("module", QUESTIONS)
def test_list_names_every_question(module: str) -> None:
    """As a process of its own, as `make bench ARGS=--list` runs it; nothing is measured, and nothing needed."""
    command = [sys.executable, "-m", module, "--list"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)

    assert QUESTIONS[module] == [line.split()[0] for line in listed.stdout.splitlines() if not line.startswith(" ")]
    assert listed.stderr == ""


def test_every_question_has_a_title() -> None:
    """The docstring of every benchmark has a first line."""
    assert [] == [name for name, question in {**bench.QUESTIONS, **OF_PEERS}.items() if not bench.title(question)]


@pytest.mark.parametrize("arguments", [["--only", "nonsense"], ["--nonsense"], ["--only"]])
def test_an_unknown_question_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is measured."""
    with pytest.raises(SystemExit) as refused:
        bench.main(arguments)

    assert refused.value.code == 2
    assert "usage: python -m benchmarks" in capsys.readouterr().err
