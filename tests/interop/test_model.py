"""The rules of registrations, evictions and watches in TLA+, checked by TLC for every order of events."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.interop.peers.place import class_path

MODEL = Path(__file__).parent / "model"
pytestmark = pytest.mark.needs("java", "mvn")


def _check(config: str, home: Path, planted: str = "nothing") -> str:
    """TLC's output for the model, with a fault planted in it."""
    rules = (MODEL / f"{config}.cfg").read_text(encoding="utf-8")
    # TLC expects all its files beside the model.
    (home / "registry.cfg").write_text(rules.replace('"nothing"', f'"{planted}"'), encoding="utf-8")
    shutil.copy(MODEL / "registry.tla", home)
    java = ["java", "-XX:+UseParallelGC", "-Xmx3g", "-cp", class_path("tlc")]
    command = [*java, "tlc2.TLC", "-deadlock", "-workers", "2", "registry.tla"]
    return subprocess.run(command, cwd=home, stdout=subprocess.PIPE, text=True, check=False, timeout=3_600).stdout


@pytest.mark.parametrize("config", ["registering", "watching"])
def test_model_has_no_fault(config: str, tmp_path: Path) -> None:
    """TLC finds no violation within the bounds of the configuration."""
    output = _check(config, tmp_path)

    assert "Model checking completed. No error has been found." in output, output
    assert " 0 states left on queue" in output, output


@pytest.mark.parametrize(
    ("planted", "config", "violated"),
    [
        ("no fence", "registering", "NoLiveBrokerEvicted|NoRemovalOfNewerRegistration"),
        ("stale unregister taken", "registering", "NoRemovalOfNewerRegistration"),
        ("unregister overtaken", "registering", "TablesEqualTruth"),
        ("older registration taken", "registering", "TablesEqualTruth"),
        ("registered after its end", "registering", "NoDeadBrokerKept"),
        ("boot id used again", "watching", "WatchLosesNothing|RevisionNeverBack"),
        ("removal not counted", "watching", "WatchLosesNothing"),
    ],
)
def test_model_finds_planted_faults(planted: str, config: str, violated: str, tmp_path: Path) -> None:
    """TLC finds each planted fault, so the invariants can fail."""
    output = _check(config, tmp_path, planted)

    assert re.search(rf"Invariant ({violated}) is violated", output), output
