"""The server answers real brokers, frame by frame, as Apache's NameServer did."""

from pathlib import Path

import pytest

from tests.golden.replay import read_deviations, read_scenario, replay, unused
from tests.support.daemon import Daemon, LoopName

HERE = Path(__file__).parent / "recordings"
DEVIATIONS = HERE / "deviations.toml"
RECORDINGS = sorted(path.stem for path in HERE.glob("*.jsonl"))


def test_every_recording_says_where_it_is_from() -> None:
    """Beside each file of frames lies one that names the product and its version."""
    assert RECORDINGS == sorted(path.stem for path in HERE.glob("*.toml") if path != DEVIATIONS)


def test_deviations_name_their_recording() -> None:
    """No deviation is left over from a recording that is not here."""
    assert {name.rpartition("/")[0] for name in read_deviations(DEVIATIONS)} <= set(RECORDINGS)


@pytest.mark.parametrize("loop", ["auto", pytest.param("asyncio", marks=pytest.mark.slow)])
@pytest.mark.parametrize("recording", RECORDINGS)
def test_recording(recording: str, loop: LoopName, tmp_path: Path) -> None:
    """Registrations, heartbeats, unregistrations, and the tables asked for in between, are answered as recorded."""
    steps = read_scenario(HERE / f"{recording}.jsonl")
    deviations = read_deviations(DEVIATIONS)

    with Daemon(tmp_path / "data", loop=loop) as daemon:
        results = replay(daemon.address, steps, deviations)
        exit_code = daemon.stop()

    assert [] == [str(result) for result in results if result.problems]
    assert [] == unused(deviations, results)
    assert 0 == exit_code
    assert [] == [line for line in daemon.log if "traceback" in line]
