"""The server answers as Apache's does, except where it deliberately does better."""

from pathlib import Path

import pytest

from tests.golden.replay import (
    Answer,
    Deviation,
    ReplayError,
    Step,
    judge,
    main,
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

ANSWER = {"serialize_type": 0, "code": 17, "flag": 1, "remark": "no route", "extFields": None, "body": ""}
STEP = Step("s/1", "", 1, b"", ANSWER, opaque=7, is_only_code_compared=False)


@pytest.mark.parametrize("loop", ["auto", pytest.param("asyncio", marks=pytest.mark.slow)])
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_scenario(path: Path, loop: LoopName, tmp_path: Path) -> None:
    """A fresh server answers every step as Apache's did, or exactly as its deviation says; real brokers', too."""
    deviations = read_deviations(path.parent / "deviations.toml")

    with Daemon(tmp_path / "data", *(AS_RECORDED if path.stem in SCENARIOS else ()), loop=loop) as daemon:
        results = replay(daemon.address, read_scenario(path), deviations)
        exit_code = daemon.stop()

    assert [] == [str(result) for result in results if result.problems]
    assert SCENARIOS.get(path.stem, len(results)) == len(results)
    assert [] == unused(deviations, results)
    assert 0 == exit_code
    assert [] == [line for line in daemon.log if "traceback" in line]


@pytest.mark.parametrize("folder", [HERE, RECORDINGS])
def test_deviations_name_their_scenario(folder: Path) -> None:
    """No deviation is left over from a scenario that is not here."""
    named = {name.rpartition("/")[0] for name in read_deviations(folder / "deviations.toml")}
    assert named <= {path.stem for path in folder.glob("*.jsonl")}


def test_every_recording_says_where_it_is_from() -> None:
    """Beside each file of frames lies one that names the product and its version."""
    assert {path.stem for path in RECORDINGS.glob("*.toml")} == {
        "deviations",
        *(path.stem for path in RECORDINGS.glob("*.jsonl")),
    }


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The script counts, exits with 0 when all is as it should be, and with 1 and a line when something is not."""
    scenario = str(HERE / "all-codes.jsonl")
    deviations = str(HERE / "deviations.toml")

    with Daemon(tmp_path / "data", *AS_RECORDED) as daemon:
        assert 0 == main([daemon.where, scenario, "--deviations", deviations])
        assert "50 as recorded, 7 deviating on purpose, 0 different\n" == capsys.readouterr().out

    with Daemon(tmp_path / "another", *AS_RECORDED) as daemon:
        assert 1 == main([daemon.where, scenario])
        lines = capsys.readouterr().out.splitlines()
        assert "all-codes/20: remark: want 'not set any response code', got None" in lines
        assert "50 as recorded, 0 deviating on purpose, 7 different" == lines[-1]

    assert 2 == main([daemon.where, scenario])


SAME = {**ANSWER, "opaque": 7}


@pytest.mark.parametrize(
    ("got", "deviation", "problems"),
    [
        # an empty field is the same as none
        ({**SAME, "extFields": {}}, None, ()),
        ("closed", None, ("want code 17 with remark 'no route', got closed",)),
        # what deviates must do so as it says, in all other fields, too
        ({**SAME, "code": 1}, Deviation("better", {"code": 1}), ()),
        ({**SAME, "code": 1, "remark": "surprise"}, Deviation("better", {"code": 1}),
         ("remark: want 'no route', got 'surprise'",)),
        # where nothing is wanted, everything but the recorded answer is accepted
        ("closed", Deviation("better", None), ()),
        (SAME, Deviation("better", None), ("does not deviate any more",)),
    ],
)  # fmt: skip
def test_answers_are_judged(got: Answer, deviation: Deviation | None, problems: tuple[str, ...]) -> None:
    """As recorded, or exactly as the deviation says."""
    result = judge(STEP, got, deviation)

    assert (deviation is not None, problems) == (result.deviates, result.problems)


def test_every_field_is_compared() -> None:
    """Code, flag, remark, ext fields, serialize type, opaque and body: each difference is a problem of its own."""
    other = {"serialize_type": 77, "code": 0, "flag": 3, "remark": None, "extFields": {"a": "b"}, "body": "x"}

    assert 7 == len(judge(STEP, {**other, "opaque": 8}, None).problems)


@pytest.mark.parametrize(
    ("recorded", "answered", "same"),
    [
        ('{"a":{0:"x",-1:"y"}}', '{"a": {"-1": "y", "0": "x"}}', True),
        ('{"topicList":["b","a"]}', '{"topicList":["a","b"]}', True),
        ('{"a":"\\/\\u00e9"}', '{"a":"/é"}', True),
        # what looks like a key inside a string is text
        ('{"a":"{0:1"}', '{"a":"{\\"0\\":1"}', False),
        ('{"a":["b","a"]}', '{"a":["a"]}', False),
        ("no json", "no json either", False),
    ],
)
def test_bodies_are_compared_as_data(recorded: str, answered: str, same: bool) -> None:
    """Order, blanks, escapes and unquoted integer keys make no difference; values do."""
    step = Step("s/1", "", 1, b"", {**ANSWER, "body": recorded}, opaque=None, is_only_code_compared=False)

    problems = judge(step, {**ANSWER, "opaque": 1, "body": answered}, None).problems

    assert same == (not problems)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('["s/1"]\naccept = true\n', "s/1: a deviation without a reason"),
        ('["s/1"]\nreason = " "\naccept = true\n', "s/1: a deviation without a reason"),
        ('["s/1"]\nreason = "better"\n', "s/1: a deviation has either a response or accept = true"),
        ('["s/1"]\nreason = "better"\naccept = true\nresponse = { code = 1 }\n', "s/1: a deviation has either"),
        ('["s/1"]\nreason = "better"\nresponse = { codes = 1 }\n', r"s/1: of \['codes'\] only code, flag"),
        ('["s/1"]\nreason = "better"\nresponse = "ignored"\n', "s/1: outcome 'ignored' is none of"),
        ('["s/1"]\nreason = "better"\nwhy = "?"\naccept = true\n', "s/1: a deviation is a table of"),
    ],
)
def test_vague_deviation_is_refused(text: str, message: str, tmp_path: Path) -> None:
    """A deviation says why, and what is wanted instead."""
    path = tmp_path / "deviations.toml"
    path.write_text(text)

    with pytest.raises(ReplayError, match=message):
        read_deviations(path)


def test_deviation_of_no_step_is_found() -> None:
    """A deviation for a step that a played scenario does not have is reported; those of other scenarios are not."""
    results = [judge(STEP, SAME, None)]

    assert ["s/2"] == unused(["s/1", "s/2", "other/9"], results)
