"""The rules of registering, leaving and watching in TLA+, followed through every order of events by TLC."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.interop.peers.place import class_path

MODEL = Path(__file__).parent / "model"
pytestmark = pytest.mark.needs("java", "mvn")


def _check(config: str, home: Path, planted: str = "nothing") -> str:
    """What TLC says of the model with a fault planted in it."""
    rules = (MODEL / f"{config}.cfg").read_text(encoding="utf-8")
    # it looks for all its files beside the model
    (home / "registry.cfg").write_text(rules.replace('"nothing"', f'"{planted}"'), encoding="utf-8")
    shutil.copy(MODEL / "registry.tla", home)
    java = ["java", "-XX:+UseParallelGC", "-Xmx3g", "-cp", class_path("tlc")]
    command = [*java, "tlc2.TLC", "-deadlock", "-workers", "2", "registry.tla"]
    return subprocess.run(command, cwd=home, stdout=subprocess.PIPE, text=True, check=False, timeout=3_600).stdout


@pytest.mark.parametrize("config", ["registering", "watching"])
def test_model_has_no_fault(config: str, tmp_path: Path) -> None:
    """Exhaustive within the bounds of the configuration."""
    said = _check(config, tmp_path)

    assert "Model checking completed. No error has been found." in said, said
    assert " 0 states left on queue" in said, said


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
def test_model_finds_what_is_planted(planted: str, config: str, violated: str, tmp_path: Path) -> None:
    """A model in which nothing can go wrong would prove nothing."""
    said = _check(config, tmp_path, planted)

    assert re.search(rf"Invariant ({violated}) is violated", said), said
