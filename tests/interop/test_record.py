"""The recordings of tests/golden can be made again, and our server passes the new ones."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from tests.golden.replay import read_scenario, replay
from tests.interop.record import ALL, RECORDINGS, write
from tests.support.daemon import Daemon
from tests.support.ports import broker_port

# One recording of each generation of brokers, with the codes that only this generation sends.
FRESH: Final = {"broker-5-heartbeats": {901, 904}, "broker-4": set[int]()}
# In the other recordings tables change between the brokers' requests, and Apache's server, which unregisters after its
# response, may still have shown a removed broker.
COMPARED: Final = {103, 104, 322, 904}


@pytest.fixture(scope="module")
def recordings(place: Path) -> Iterator[dict[str, Future[Path]]]:
    """All recordings in FRESH, made at the same time."""
    with ThreadPoolExecutor() as pool:
        yield {
            recording.name: pool.submit(write, recording, place, (broker_port(), broker_port()))
            for recording in ALL
            if recording.name in FRESH
        }


@pytest.mark.parametrize("name", FRESH)
def test_fresh_recording(name: str, recordings: dict[str, Future[Path]], tmp_path: Path) -> None:
    """Both brokers register and unregister in a new recording, and our server answers its frames as Apache's did."""
    path = recordings[name].result()
    steps = read_scenario(path)
    codes = [int(step.label.partition(" ")[0]) for step in steps]

    with Daemon(tmp_path / "data") as daemon:
        results = replay(daemon.listening().address, steps)

    assert {103, 104, *FRESH[name]} <= set(codes)
    assert codes.count(104) == 2
    problems = [
        str(result) for code, result in zip(codes, results, strict=True) if code in COMPARED and result.problems
    ]
    assert problems == []
    # Apart from times and numbers the file beside it equals the kept one.
    kept = RECORDINGS / path.with_suffix(".toml").name
    assert kept.read_text(encoding="utf-8") == path.with_suffix(".toml").read_text(encoding="utf-8")
