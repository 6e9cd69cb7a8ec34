"""Tables, times and permissions, and escaped names on the terminal."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from namesrv_client.ctl.comparison import perm_text
from namesrv_client.ctl.output import cell, counted, event_text, json_text, lasting, moment, table, yaml_text
from namesrv_remoting.bodies.extensions import Event
from namesrv_runtime.log import printable
from tests.support.apache_server import ApacheFront
from tests.support.ctl import address_of, at, ctl, one_server
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import Broker, native, registration

ROWS = [("broker-a", 0, None, True, "10.0.0.1:10911"), ("b", 10, None, False, "[::1]:1")]
HEADS = ("name", "id", "zone", "wiped", "address")


def rendered(width: int, *rows: tuple[object, ...], heads: tuple[str, ...] = HEADS) -> list[str]:
    """The lines of a table printed on a console of this width."""
    console = Console(width=width, markup=False, color_system=None, highlight=False)
    with console.capture() as captured:
        for part in table(heads, rows):
            console.print(part, crop=False)
    return captured.get().splitlines()


def test_table_has_columns_without_lines() -> None:
    """Numbers are aligned right, empty columns are left out, and an empty table prints nothing."""
    lines = ["NAME      ID  WIPED  ADDRESS", "broker-a   0  yes    10.0.0.1:10911", "b         10  no     [::1]:1"]
    assert lines == rendered(100, *ROWS) == rendered(35, *ROWS)
    assert rendered(100) == []


def test_long_rows_become_blocks() -> None:
    """On a narrow terminal rows become blocks, without folded or cut values."""
    first = ["NAME     broker-a", "ID       0", "WIPED    yes", "ADDRESS  10.0.0.1:10911"]
    second = ["NAME     b", "ID       10", "WIPED    no", "ADDRESS  [::1]:1"]
    assert [*first, "", *second] == rendered(34, *ROWS) == rendered(5, *ROWS)


def test_heads_and_wide_characters() -> None:
    """A head is in capitals, but for the address of a server in it; a Chinese character takes two columns."""
    heads = ("name", "ns1:9876", "expires in, ns2:9876")
    assert rendered(100, ("b", "yes", "1 s"), heads=heads)[0] == "NAME  ns1:9876  EXPIRES IN, ns2:9876"
    assert rendered(12, ("主题主题", 1), heads=("name", "id")) == ["NAME      ID", "主题主题   1"]
    assert rendered(11, ("主题主题", 1), heads=("name", "id")) == ["NAME  主题主题", "ID    1"]


@pytest.mark.parametrize(("count", "text"), [(0, "0 brokers"), (1, "1 broker"), (1_000, "1,000 brokers")])
def test_counted(count: int, text: str) -> None:
    """Only a count of one has the singular."""
    assert counted(count, "broker") == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (True, "yes"), (False, "no"), (1.5, "1.5"), ("[red]\x1b", r"[red]\x1b"), (Text("x"), "x")],
)
def test_cells(value: object, text: str) -> None:
    """Every value is shown literally."""
    assert cell(value).plain == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((unknown, None) for unknown in (None, float("nan"), float("inf"))),
        *((0.349, "0.3 s"), (-0.5, "-0.5 s"), (59.9, "59.9 s"), (60, "1 m 0 s"), (-125.9, "-2 m 5 s")),
        *((3_600, "1 h 0 m"), (86_399, "23 h 59 m"), (90_000, "1 d 1 h"), (1e18, "11574074074074 d 1 h")),
    ],
)
def test_lasting(seconds: float | None, text: str | None) -> None:
    """Durations show their two largest units."""
    assert lasting(seconds) == text


@pytest.mark.parametrize("ts_ms", [None, 10**30, -(10**30)])
def test_invalid_timestamp_is_shown_as_a_number(ts_ms: int | None) -> None:
    """A timestamp outside the calendar is shown as received."""
    assert (None if ts_ms is None else str(ts_ms)) == moment(ts_ms)


@pytest.mark.usefixtures("shanghai")
def test_moments_are_in_utc() -> None:
    """Times are in UTC, whatever the zone of this machine, like those of the report and the console."""
    assert moment(1_772_352_000_001) == "2026-03-01 08:00:00.001"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"cluster": "c", "broker_name": "dc1/b%", "broker_id": 0, "broker_addr": "m:1", "by": None},
            "c/dc1%2Fb%25/0 m:1",
        ),
        ({"broker_name": "b", "topics": ["T", "%RETRY%g"], "count": 2}, "broker_name=b topics=T,%RETRY%g count=2"),
    ],
)
def test_fields_of_an_event_are_a_line(fields: dict[str, Any], text: str) -> None:
    """The broker is one word, in which a slash within a name is escaped; other fields have their names."""
    assert event_text(Event(1, "takeover_attempted", 0, fields)) == text


@pytest.mark.parametrize(("perm", "text"), [(0, "---"), (2, "-W-"), (4, "R--"), (6, "RW-"), (7, "RWX"), (8, "---")])
def test_permissions_are_written_as_in_rocketmq(perm: int, text: str) -> None:
    """Read, write and inherit permission have RocketMQ's letters."""
    assert perm_text(perm) == text


# -- hostile names ----------------------------------------------------------------------------------------------------

# screen clearing, rich markup, text direction, an emoji name, line breaks, a control sequence, a tab
EVIL = ("\x1b[2J\x1b[H", "[red]x[/red]", "\u202egnirts", ":smile:", "a\r\nb\x07", "\x9b31m", "tab\tbed")
SHOWN = (r"\x1b[2J\x1b[H", "[red]x[/red]", r"\u202egnirts", ":smile:", r"a\r\nb\x07", r"\x9b31m", r"tab\tbed")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_output_is_always_printable(text: str) -> None:
    """No format prints control characters, and JSON and YAML keep the server's text."""
    document = {"name": text, text: [text]}
    as_json = json_text(json.dumps(document, ensure_ascii=False, indent=2))
    as_yaml = yaml_text(document)

    assert printable(text).isprintable()
    for spelt in (as_json, as_yaml):
        assert spelt.replace("\n", "").isprintable()
    assert document == json.loads(as_json) == yaml.safe_load(as_yaml)
    assert json_text(as_json, is_ascii=True).isascii()
    assert json.loads(json_text(as_json, is_ascii=True)) == document


@pytest.mark.parametrize("protocol", ["native", "rocketmq"])
async def test_names_are_shown_literally(tmp_path: Path, protocol: str) -> None:
    """Hostile names of topics, brokers, clusters and addresses are escaped by every command."""
    async with one_server(tmp_path, protocol) as (server, where):
        peer = await server.connect()
        for number, name in enumerate(EVIL):
            await peer.register(Broker(name, 0, f"10.0.0.{number}{name}", name), registration(name, "T"))
            await peer.call(100, {"namespace": "ns", "key": name, "value": name})
        commands = [
            *[("brokers",), ("clusters",), ("topics",), ("config", "show"), ("status",), ("kv", "list", "ns")],
            *[("route", *EVIL), ("explain", EVIL[0]), ("explain", "absent\x1b"), ("wipe-write-perm", EVIL[0])],
            *[("kv", "get", "ns", EVIL[0]), ("kv", "get", "ns\x1b", EVIL[0])],
            *([("events",), ("connections",)] if protocol == "native" else []),
        ]
        for command in commands:
            for options in ((), ("-o", "json"), ("-o", "yaml")):
                found = await ctl(*at(where), *command, *options)
                assert (found.out + found.err).replace("\n", "").isprintable(), command
                assert found.code in (0, 1, 2), command

        # split at line breaks only, because a cell keeps its blanks
        assert sorted(["T", *SHOWN]) == sorted((await ctl(*at(where), "topics")).lines[1:])
        as_json, as_yaml = [await ctl(*at(where), "topics", "-o", it) for it in ("json", "yaml")]
        for document in (as_json.json, as_yaml.yaml):
            assert sorted(["T", *EVIL]) == sorted(document["servers"][0]["topics"])


async def test_broker_state_and_remarks_are_shown_literally(tmp_path: Path) -> None:
    """A broker's state and a server's remark are escaped; NaN in a state becomes null."""
    async with namesrv_in_process(tmp_path) as server, ApacheFront(server.address) as apache:
        peer = await server.connect()
        await peer.register(Broker())
        state = {"\x1b[2J": "[red]\x07", "n": float("nan")}
        await peer.call(904, Broker().ext, native({"state": state}), spelling="native")
        broker = await ctl(*at(server), "brokers")
        found = await ctl(*at(server), "brokers", "-o", "json")
        apache.remarks[206] = "[red]\x1b[2J\nnamesrvctl: all is well"
        refused = await ctl(*at(apache), "topics")
        error = await ctl(*at(apache), "topics", "-o", "json")

    assert broker.cells[1][-1] == r"\x1b[2J=[red]\x07 n=nan"
    assert found.json["servers"][0]["brokers"][0]["state"] == {"\x1b[2J": "[red]\x07", "n": None}
    text = r"refused with code 1: [red]\x1b[2J\nnamesrvctl: all is well"
    assert refused == (1, "", f"namesrvctl: {address_of(apache)}: {text}\n")
    assert error.json["servers"][0]["error"] == "refused with code 1: [red]\x1b[2J\nnamesrvctl: all is well"
