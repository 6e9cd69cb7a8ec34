"""A registered name does nothing to a terminal that shows it."""

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from namesrv_client.ctl.output import yaml_text
from namesrv_client.ctl.wording import json_text, shown
from tests.support.apache_server import ApacheFront
from tests.support.ctl import address_of, at, ctl
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import Broker, native, registration

# repaints the screen, looks like rich's markup, turns its neighbours around, is an emoji's name, rings
EVIL = ("\x1b[2J\x1b[H", "[red]x[/red]", "\u202egnirts", ":smile:", "a\r\nb\x07", "\x9b31m", "tab\tbed")
SHOWN = (r"\x1b[2J\x1b[H", "[red]x[/red]", r"\u202egnirts", ":smile:", r"a\r\nb\x07", r"\x9b31m", r"tab\tbed")


@pytest.mark.parametrize(("text", "expected"), list(zip(EVIL, SHOWN, strict=True)))
def test_unprintable_characters_are_shown_as_numbers(text: str, expected: str) -> None:
    """Everything else is shown as it is."""
    assert expected == shown(text)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_nothing_unprintable_is_ever_shown(text: str) -> None:
    """In no format; programs read what the server said."""
    document = {"name": text, text: [text]}
    as_json = json_text(json.dumps(document, ensure_ascii=False, indent=2))
    as_yaml = yaml_text(document)

    assert shown(text).isprintable()
    assert as_json.replace("\n", "").isprintable()
    assert as_yaml.replace("\n", "").isprintable()
    assert document == json.loads(as_json)
    assert document == yaml.safe_load(as_yaml)
    assert json_text(as_json, is_ascii=True).isascii()
    assert document == json.loads(json_text(as_json, is_ascii=True))


@pytest.mark.parametrize("is_apache", [False, True], ids=["native", "rocketmq"])
async def test_names_are_shown_literally(tmp_path: Path, *, is_apache: bool) -> None:
    """Of topics, brokers, clusters and addresses, by every command that shows them."""
    async with namesrv_in_process(tmp_path) as ours, ApacheFront(ours.address) as apache:
        server = apache if is_apache else ours
        peer = await ours.connect()
        for number, name in enumerate(EVIL):
            broker = Broker(name, 0, f"10.0.0.{number}{name}", name)
            await peer.register(broker, registration(name, "T"))
            await peer.call(100, {"namespace": "ns", "key": name, "value": name})
        commands = [
            ("brokers",),
            ("clusters",),
            ("topics",),
            ("route", *EVIL),
            ("explain", EVIL[0]),
            ("explain", "absent\x1b"),
            ("kv", "list", "ns"),
            ("kv", "get", "ns", EVIL[0]),
            ("kv", "get", "ns\x1b", EVIL[0]),
            ("config", "show"),
            ("status",),
            ("wipe-write-perm", EVIL[0]),
        ]
        if not is_apache:
            commands += [("events",), ("connections",)]
        for command in commands:
            for options in ((), ("-o", "json"), ("-o", "yaml")):
                found = await ctl(*at(server), *command, *options)
                assert (found.out + found.err).replace("\n", "").isprintable(), command
                assert found.code in (0, 1, 2), command

        # by its line breaks: a cell keeps its blanks
        rows = (await ctl(*at(server), "topics")).lines
        assert sorted(["T", *SHOWN]) == sorted(rows[1:])
        assert sorted(["T", *EVIL]) == sorted(
            (await ctl(*at(server), "topics", "-o", "json")).json["servers"][0]["topics"]
        )
        assert sorted(["T", *EVIL]) == sorted(
            (await ctl(*at(server), "topics", "-o", "yaml")).yaml["servers"][0]["topics"]
        )


async def test_state_of_a_broker_is_shown_literally(tmp_path: Path) -> None:
    """It names its members itself; what is no number is none."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await peer.register(Broker())
        state = {"\x1b[2J": "[red]\x07", "n": float("nan")}
        await peer.call(904, Broker().ext, native({"state": state}), spelling="native")

        shown = await ctl(*at(server), "brokers")
        found = await ctl(*at(server), "brokers", "-o", "json")

    assert r"\x1b[2J=[red]\x07 n=nan" == shown.cells[1][-1]
    assert {"\x1b[2J": "[red]\x07", "n": None} == found.json["servers"][0]["brokers"][0]["state"]


async def test_refusals_are_shown_literally(tmp_path: Path) -> None:
    """A remark is a server's text, too."""
    async with namesrv_in_process(tmp_path) as server, ApacheFront(server.address) as apache:
        apache.remarks[206] = "[red]\x1b[2J\nnamesrvctl: all is well"
        refused = await ctl(*at(apache), "topics")
        found = await ctl(*at(apache), "topics", "-o", "json")

        shown = r"refused with code 1: [red]\x1b[2J\nnamesrvctl: all is well"
        assert (1, "", f"namesrvctl: {address_of(apache)}: {shown}\n") == refused
        assert "refused with code 1: [red]\x1b[2J\nnamesrvctl: all is well" == found.json["servers"][0]["error"]
