"""The server answers as Apache's does, except where it deliberately does better."""

from pathlib import Path

import pytest

from tests.golden.replay import (
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
SCENARIOS = {"all-codes": 57, "malformed-frames": 49, "register-variants": 64}
# what the recorded server has on by default
AS_RECORDED = ("--admin-enabled", "--proxy-protocol", "optional")

ANSWER = {"serialize_type": 0, "code": 17, "flag": 1, "remark": "no route", "extFields": None, "body": ""}
STEP = Step("s/1", "", 1, b"", ANSWER, opaque=7, is_only_code_compared=False)


@pytest.mark.parametrize("loop", ["auto", pytest.param("asyncio", marks=pytest.mark.slow)])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario: str, loop: LoopName, tmp_path: Path) -> None:
    """A fresh server answers every step as it was recorded, or exactly as its deviation says."""
    deviations = read_deviations(HERE / "deviations.toml")

    with Daemon(tmp_path / "data", *AS_RECORDED, loop=loop) as daemon:
        results = replay(daemon.address, read_scenario(HERE / f"{scenario}.jsonl"), deviations)
        exit_code = daemon.stop()

    assert [] == [str(result) for result in results if result.problems]
    assert SCENARIOS[scenario] == len(results)
    assert [] == unused(deviations, results)
    assert 0 == exit_code
    assert [] == [line for line in daemon.log if "traceback" in line]


def test_deviations_name_their_scenario() -> None:
    """No deviation is left over from a scenario that is not here."""
    assert SCENARIOS.keys() == {name.rpartition("/")[0] for name in read_deviations(HERE / "deviations.toml")}


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The script counts, exits with 0 when all is as it should be, and with 1 and a line when something is not."""
    scenario = str(HERE / "all-codes.jsonl")
    deviations = str(HERE / "deviations.toml")

    with Daemon(tmp_path / "data", *AS_RECORDED) as daemon:
        host, port = daemon.address
        assert 0 == main([f"{host}:{port}", scenario, "--deviations", deviations])
        assert "50 as recorded, 7 deviating on purpose, 0 different\n" == capsys.readouterr().out

    with Daemon(tmp_path / "another", *AS_RECORDED) as daemon:
        host, port = daemon.address
        assert 1 == main([f"{host}:{port}", scenario])
        lines = capsys.readouterr().out.splitlines()
        assert "all-codes/20: remark: want 'not set any response code', got None" in lines
        assert "50 as recorded, 0 deviating on purpose, 7 different" == lines[-1]

    assert 2 == main([f"{host}:{port}", scenario])


def test_answer_as_recorded_is_fine() -> None:
    """An answer with the same fields has no problem; an empty field is the same as none."""
    assert () == judge(STEP, {**ANSWER, "opaque": 7, "extFields": {}}, None).problems


def test_every_field_is_compared() -> None:
    """Code, flag, remark, ext fields, serialize type, opaque and body: each difference is a problem of its own."""
    other = {"serialize_type": 77, "code": 0, "flag": 3, "remark": None, "extFields": {"a": "b"}, "body": "x"}

    assert 7 == len(judge(STEP, {**other, "opaque": 8}, None).problems)


def test_outcome_is_compared() -> None:
    """A closed connection is no answer."""
    assert ("want code 17 with remark 'no route', got closed",) == judge(STEP, "closed", None).problems


def test_wanted_deviation_is_fine() -> None:
    """An answer that deviates as wanted has no problem, and counts as deviating."""
    result = judge(STEP, {**ANSWER, "opaque": 7, "code": 1}, Deviation("better", {"code": 1}))

    assert (True, ()) == (result.deviates, result.problems)


def test_another_deviation_than_the_wanted_one_is_a_problem() -> None:
    """What deviates must do so as it says, in all other fields, too."""
    got = {**ANSWER, "opaque": 7, "code": 1, "remark": "surprise"}

    assert ("remark: want 'no route', got 'surprise'",) == judge(STEP, got, Deviation("better", {"code": 1})).problems


def test_deviation_that_does_not_deviate_is_a_problem() -> None:
    """Once the server answers as recorded, the deviation has to go."""
    got = {**ANSWER, "opaque": 7}

    assert ("does not deviate any more",) == judge(STEP, got, Deviation("better", None)).problems


def test_accepted_deviation_may_be_anything() -> None:
    """Where nothing is wanted, everything but the recorded answer is accepted."""
    assert () == judge(STEP, "closed", Deviation("better", None)).problems


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
def test_bodies_are_compared_as_data(recorded: str, answered: str, same: bool) -> None:  # noqa: FBT001
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
    results = [judge(STEP, {**ANSWER, "opaque": 7}, None)]

    assert ["s/2"] == unused(["s/1", "s/2", "other/9"], results)
