"""Output on a terminal."""

import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from namesrv_testing.ports import held_port
from tests.support.ctl import COMMAND, refusing_address
from tests.support.daemon import Daemon
from tests.support.fake_clock import GUARD_SECONDS
from tests.support.peer import Broker, Peer
from tests.support.terminal import Terminal

# one worker gets all of them, for the server's sake
pytestmark = pytest.mark.xdist_group("terminal")
BROKER = Broker(name="broker-with-a-long-name", topics=("orders", "bills"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with one broker."""
    with Daemon(tmp_path_factory.mktemp("data")).listening() as daemon, Peer(daemon.address) as peer:
        BROKER.register(peer)
        yield daemon.where


def plain(shown: str) -> list[str]:
    """The lines without colour sequences."""
    return [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line).rstrip() for line in shown.splitlines()]


def test_watch_repaints_in_place_until_ctrl_c(server: str) -> None:
    """Every page starts at the top without clearing the screen; Ctrl-C exits with 0."""
    with Terminal([*COMMAND, "-s", server, "topics", "--watch", "100ms"], columns=60) as shown:
        shown.wait_for("orders", count=3)
        shown.interrupt()
        code = shown.wait()

    pages = shown.shown.split("\x1b[H")
    assert (code, pages[0]) == (0, "")
    assert pages[1].startswith("\x1b[2J")
    assert "\x1b[2J" not in pages[2] + pages[3]
    assert "every 0.1 s, at" in pages[2]
    assert plain(pages[2])[1:4] == ["TOPIC", "bills", "orders"]
    assert pages[2].rstrip().endswith("\x1b[J")
    assert all(line.endswith("\x1b[K") for line in pages[2].splitlines()[:-1])
    assert "Traceback" not in shown.shown


def test_watch_page_is_cut_to_the_terminal(server: str) -> None:
    """The page ends with a count of hidden lines, and names unreachable servers."""
    with refusing_address() as absent:
        command = [*COMMAND, "-s", server, "-s", absent, "config", "show", "--all", "--watch", "200ms"]
        with Terminal(command, lines=10, columns=300) as shown:
            shown.wait_for("more lines", count=2)
            shown.interrupt()
            assert shown.wait() == 0

    lines = plain(shown.shown.split("\x1b[H")[1])
    assert lines[1].startswith(f"no connection to {absent}")
    assert re.fullmatch(r"\.\.\. \d+ more lines", lines[8])
    assert lines[9:] == [""]


def test_watch_without_a_terminal_prints_one_line_each(server: str) -> None:
    """Every repetition prints one line of JSON."""
    command = [*COMMAND, "-s", server, "topics", "--watch", "100ms", "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        lines = [running.stdout.readline() for _ in range(3)]
        running.terminate()

    assert [json.loads(line)["servers"][0]["topics"] for line in lines] == [["bills", "orders"]] * 3


@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("\n", 1), (None, 1)])
def test_change_is_confirmed_on_the_terminal(server: str, typed: str | None, code: int) -> None:
    """Only `y` confirms a change; Enter and Ctrl-C do not."""
    with Terminal([*COMMAND, "-s", server, "add-write-perm", BROKER.name], columns=200) as shown:
        shown.wait_for(f"make all topics of broker {BROKER.name} readable and writable on {server}? [y/N]: ")
        shown.interrupt_prompt() if typed is None else shown.type(typed)
        assert shown.wait() == code
    assert ("done" in shown.shown) == (code == 0)


def test_interrupted_change_names_the_servers(server: str) -> None:
    """Ctrl-C while a server does not answer names all servers, and exits with 130."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        other = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [*COMMAND, "-s", server, "-s", other, "--timeout", "60s", "kv", "put", "ns", "key", "value"]
        with Terminal(command, columns=200) as shown, silent.accept()[0]:
            shown.interrupt()
            code = shown.wait()

    first, second = plain(shown.shown)
    assert (code, first.startswith(f"namesrvctl: {server}: ")) == (130, True)
    assert second == f"namesrvctl: {other}: interrupted; the change may have been made"


def test_settings_are_judged_again_when_they_are_changed(tmp_path: Path) -> None:
    """A server that starts while the question waits would ignore a setting that it does not have: it is not changed."""
    with held_port() as port:
        server = f"127.0.0.1:{port}"
        with Terminal([*COMMAND, "-s", server, "config", "set", "enableTopicLst=false"], columns=200) as shown:
            shown.wait_for(f"set enableTopicLst to false on {server}? [y/N]: ")
            with Daemon(tmp_path, "--listen-port", str(port), "--admin-enabled").listening():
                shown.type("y\n")
                code = shown.wait()

    assert (code, "no setting enableTopicLst (did you mean enableTopicList?)" in shown.shown) == (1, True)
    assert "done" not in shown.shown


@pytest.mark.parametrize(
    ("option", "env", "is_coloured"), [((), {}, True), (("--no-color",), {}, False), ((), {"NO_COLOR": "1"}, False)]
)
def test_colours_can_be_switched_off(
    server: str, option: tuple[str, ...], env: dict[str, str], *, is_coloured: bool
) -> None:
    """--no-color or NO_COLOR switches colours off."""
    with Terminal([*COMMAND, "-s", server, "status", *option], env=env, columns=200) as shown:
        assert shown.wait() == 0

    assert is_coloured == ("\x1b[32mready" in shown.shown)
    assert "ready" in shown.shown


def test_piped_rows_are_one_line_each(server: str) -> None:
    """A pipe gets whole rows without colours, regardless of COLUMNS."""
    command, env = [*COMMAND, "-s", server, "brokers"], {**os.environ, "COLUMNS": "20"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)

    assert (len(done.stdout.splitlines()), BROKER.name in done.stdout, "\x1b" in done.stdout) == (2, True, False)


def test_closed_pipe_ends_quietly(server: str) -> None:
    """A closed pipe ends the command with the code of SIGPIPE and no message."""
    line = " ".join(COMMAND)
    script = f"{line} -s {server} topics --watch 100ms | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "141"
    assert done.stderr == ""


@pytest.mark.parametrize(
    "words",
    [
        ("watch", "orders"),
        ("events", "--follow", "--limit", "1"),
        ("audit", "--follow", "--limit", "1"),
        ("topics", "--watch", "1h"),
        ("migrate", "check", "--watch", "1h"),
    ],
    ids=" ".join,
)
def test_command_that_has_nothing_to_print_ends_with_its_reader(server: str, words: tuple[str, ...]) -> None:
    """`namesrvctl watch T | head -1` ends after the first line, not with the next change."""
    other = ("--from", server, "--to", "127.0.0.1:9") if words[0] == "migrate" else ("-s", server)
    with subprocess.Popen([*COMMAND, *words, *other], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.readline()
        running.stdout.close()
        code = running.wait(GUARD_SECONDS)

    assert code == 141
