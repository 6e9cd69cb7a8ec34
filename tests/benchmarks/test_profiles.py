"""Servers of three sizes: the brokers of topics, and the smallest profile end to end."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.harness.build import ROOT
from benchmarks.speed.profiles import EXPIRY_SECONDS, PROFILES, brokers_of
from tests.benchmarks.test_harness import needs_compiler


def test_every_topic_is_on_four_brokers() -> None:
    """Every topic of profile S is on four brokers; every broker has its own address, even in profile L."""
    brokers = brokers_of(PROFILES["S"])
    copies = Counter(topic.topic_name for broker in brokers for topic in broker.topics)

    assert (set(copies.values()), len(copies)) == ({4}, 1_000)
    assert len({broker.addr for broker in brokers_of(PROFILES["L"])}) == 1_000


@pytest.mark.slow
@needs_compiler
def test_the_smallest_is_measured_from_start_to_death(tmp_path: Path) -> None:
    """1,000 clients are served, reconnect after a restart, and all receive the route without a dead broker.

    A silent broker is evicted only after the expiry that it registered.
    """
    command = [sys.executable, "-m", "benchmarks", "--only", "profiles", "--quick", "--json", str(tmp_path / "json")]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    found = {each["name"]: each["value"] for each in json.loads((tmp_path / "json").read_text())["figures"]}

    assert len(found) == 15
    assert {name.split(".")[1] for name in found} == {"S"}
    assert min(found["profiles.S.registered"], found["profiles.S.served"]) > 0
    assert found["profiles.S.restart.brokers"] <= found["profiles.S.restart.clients"]
    assert found["profiles.S.death.silent"] > EXPIRY_SECONDS
    assert 0 < found["profiles.S.pulls.p50"] <= found["profiles.S.pulls.p99"] <= found["profiles.S.pulls.p99.9"]
