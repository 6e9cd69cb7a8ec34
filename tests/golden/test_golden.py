"""The server answers as Apache's does, except where it deliberately does better."""

from pathlib import Path

import pytest

from tests.golden.replay import (
    read_deviations,
    read_scenario,
    replay,
    unused,
)
from tests.support.daemon import Daemon, LoopName

HERE = Path(__file__).parent
# what real brokers said to Apache's NameServer, frame by frame
RECORDINGS = HERE / "recordings"
SCENARIOS = {"all-codes": 57, "malformed-frames": 49, "register-variants": 64}
PATHS = [*(HERE / f"{name}.jsonl" for name in SCENARIOS), *sorted(RECORDINGS.glob("*.jsonl"))]
# what the recorded server has on by default
AS_RECORDED = ("--admin-enabled", "--proxy-protocol", "optional")


@pytest.mark.parametrize("loop", ["auto", pytest.param("asyncio", marks=pytest.mark.slow)])
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_scenario(path: Path, loop: LoopName, tmp_path: Path) -> None:
    """A fresh server answers every step as Apache's did, or exactly as its deviation says; real brokers', too."""
    deviations = read_deviations(path.parent / "deviations.toml")

    with Daemon(tmp_path / "data", *(AS_RECORDED if path.stem in SCENARIOS else ()), loop=loop) as daemon:
        results = replay(daemon.address, read_scenario(path), deviations)
        exit_code = daemon.stop()

    assert [str(result) for result in results if result.problems] == []
    assert SCENARIOS.get(path.stem, len(results)) == len(results)
    assert unused(deviations, results) == []
    assert exit_code == 0
    assert [line for line in daemon.log if "traceback" in line] == []


@pytest.mark.parametrize("folder", [HERE, RECORDINGS])
def test_deviations_name_their_scenario(folder: Path) -> None:
    """No deviation is left over from a scenario that is not here."""
    named = {name.rpartition("/")[0] for name in read_deviations(folder / "deviations.toml")}
    assert named <= {path.stem for path in folder.glob("*.jsonl")}
