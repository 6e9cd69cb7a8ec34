"""Every command in the README and in our manuals runs as documented."""

import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from namesrv_spark_jobs.command import cli as staleness
from tests.support.daemon import Daemon
from tests.support.pages import ROOT, blocks, pages, prose
from tests.support.printing_process import PrintingProcess

PROGRAMS = (
    *(
        "make",
        "namesrv",
        "namesrvctl",
        "namesrv-broker-agent",
        "namesrv-console",
        "namesrv-staleness",
        "pip",
        "python",
        "python3",
        "curl",
    ),
    *("systemctl", "docker", "mqadmin", "ssh", "sudo", "spark-submit", "jq", "git", "apt", "apt-get", "npm", "mvn"),
    *(".venv/bin/namesrv", ".venv/bin/namesrvctl", ".venv/bin/python", "sh", "buildah", "kill", "ip", "nft", "go"),
)
# Programs whose commands are run: ours, and read-only ones.
OWN = (
    "namesrv ",
    "namesrvctl ",
    "namesrv-broker-agent ",
    "namesrv-console ",
    "curl ",
    "python -m namesrv ",
    ".venv/bin/namesrv ",
)
# Prefix of make's last line for a target.
OF_MAKE = ("make run",)
CATALOGUE = tomllib.loads((Path(__file__).parent / "commands.toml").read_text())
# Command -> expected output; a command that runs until Ctrl-C is ended after this output.
LASTING: dict[str, str] = CATALOGUE["lasting"]
RUNS: dict[str, str] = CATALOGUE["run"] | LASTING
ELSEWHERE: list[str] = CATALOGUE["elsewhere"]
BIN = Path(sys.executable).parent
COMMAND_SECONDS = 120


def manuals() -> list[Path]:
    """Pages for users; pages for developers and historical pages are left out."""
    others = ("CHANGELOG.md", "docs/bugs.md", "docs/scoreboard.md", "tests/")
    return [page for page in pages() if not str(page.relative_to(ROOT)).startswith(others)]


def commands() -> dict[str, str]:
    """Every command of every manual, with its first place."""
    found: dict[str, str] = {}
    for page in manuals():
        for place, text in (*in_blocks(page), *in_prose(page)):
            found.setdefault(text, place)
    return found


def in_blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Lines of shell blocks; a named block is one script and is run by its own test."""
    for block in blocks(page):
        if block.language == "sh" and block.example is None:
            lines = block.text.replace("\\\n", " ").splitlines()
            for text in filter(None, (" ".join(re.sub(r"(^|\s+)#.*", "", line).split()) for line in lines)):
                yield f"{block.page}:{block.line}", text


def in_prose(page: Path) -> Iterator[tuple[str, str]]:
    """Inline code that begins with a program, also in TOML files; a single word is only the program's name."""
    remarks = (
        (block.line, line) for block in blocks(page) if block.language == "toml" for line in block.text.splitlines()
    )
    for number, line in (*prose(page), *remarks):
        for text in re.findall(r"`([^`]+)`", line):
            if text.startswith(tuple(f"{program} " for program in PROGRAMS)):
                yield f"{page.relative_to(ROOT)}:{number}", text


COMMANDS = commands()
RUN_HERE = sorted(text for text in COMMANDS if text in RUNS or (f"{text} ".startswith(OWN) and text not in ELSEWHERE))


@pytest.mark.parametrize("text", sorted(text for text in COMMANDS if text.startswith("make ")))
def test_make_target_exists(text: str) -> None:
    """The make target exists, and passes ARGS on as one value."""
    done = dry_run(text)
    assert done.returncode == 0, done.stderr


def dry_run(text: str) -> subprocess.CompletedProcess[str]:
    """The output of make -n, without the ARGS of a surrounding make."""
    return subprocess.run(
        ["make", "--no-print-directory", "-n", *shlex.split(text)[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "ARGS"))},
    )


@pytest.mark.parametrize("text", [text for text in COMMANDS if text.startswith("namesrv-staleness heartbeats/")])
def test_arguments_of_a_report_are_valid(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command accepts the arguments; with --help added it reads no input."""
    log = tmp_path / "heartbeats" / "dt=2026-03-01" / "hour=07" / "ns1-1-1.jsonl"
    log.parent.mkdir(parents=True)
    log.touch()
    monkeypatch.chdir(tmp_path)
    assert staleness.main([*shlex.split(text)[1:], "--print-submit"]) == 0


@dataclass(frozen=True, slots=True)
class Scene:
    """Three servers, a broker, and a directory with the files named on the pages."""

    directory: Path
    stand_ins: dict[str, str]
    environ: dict[str, str]

    def words(self, text: str) -> str:
        """The words of a command, with the scene's names in place of the page's."""
        for written, meant in CATALOGUE["stand_ins"].items():
            text = text.replace(written, meant.format_map(self.stand_ins))
        if text.startswith(OF_MAKE):
            # The last command of a make target; earlier commands prepare what the scene already has.
            done = dry_run(text)
            done.check_returncode()
            text = done.stdout.splitlines()[-1].replace("exec ", "", 1)
        return re.sub(r"(^|\s)\.venv/bin/", rf"\1{BIN}/", text)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The environment that the pages assume."""
    directory = tmp_path_factory.mktemp("scene")
    with ExitStack() as stack:
        servers = [stack.enter_context(Daemon(directory / f"data{n}", "--http-listen=127.0.0.1:0")) for n in range(3)]
        addresses = ["{}:{}".format(*server.listening().address) for server in servers]
        everyone = ";".join(addresses)
        http = servers[0].wait_for("listening")["http"][0]
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("NAMESRV_")},
            "PATH": os.pathsep.join((str(BIN), os.environ["PATH"])),
            "XDG_CONFIG_HOME": str(directory / "config"),
            "PYTHONUNBUFFERED": "1",
            # NAMESRV_ADDR is for namesrvctl; other variables are for a namesrv without flags.
            "NAMESRV_ADDR": everyone,
            "NAMESRV_LISTEN_PORT": "0",
            "NAMESRV_HTTP_LISTEN": "127.0.0.1:0",
            "NAMESRV_DATA_DIR": str(directory / "data"),
        }
        agent = (ROOT / "broker_agent" / "README.md").read_text().partition("```toml\n")[2].partition("```")[0]
        agent = re.sub('name_servers = ".*"', f'name_servers = "{everyone}"', agent)
        (directory / "agent.toml").write_text(agent.replace("broker-a", "broker-z").replace(":10911", ":10999"))
        (directory / "broker.toml").write_text(agent + '\n[[topics]]\ntopic_name = "bills"\n')
        (directory / "namesrv.toml").write_text("broker_expiry_seconds = 60\n")
        (directory / "namesrv.properties").write_text("orderMessageEnable=true\nserverWorkerThreads=8\n")
        broker = ("namesrv-broker-agent", "--config", str(directory / "broker.toml"))
        stack.enter_context(PrintingProcess(*(str(BIN / broker[0]), *broker[1:])))
        for server in servers:
            server.wait_for("broker_registered", broker_name="broker-a")
        found = Scene(directory, dict(zip(("ns1", "ns2", "ns3"), addresses, strict=True)) | {"http": http}, environ)
        subprocess.run(
            [sys.executable, "-m", "namesrv_client.ctl", "kv", "put", "NAMESPACE", "KEY", "value", "--yes"],
            env=environ,
            check=True,
            capture_output=True,
        )
        yield found


# One worker, because the scene is large.
@pytest.mark.slow
@pytest.mark.xdist_group("commands")
@pytest.mark.parametrize("text", RUN_HERE)
def test_command(text: str, scene: Scene) -> None:
    """The command prints the expected text and exits with 0, if necessary after Ctrl-C."""
    says, words = RUNS.get(text, ""), scene.words(text)
    if text in LASTING:
        with PrintingProcess("sh", "-c", f"cd '{scene.directory}' && exec env {words}", **scene.environ) as process:
            process.wait_for(says)
            process.send_signal(signal.SIGINT)
            assert process.wait() == 0, process.lines
        return
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", words],
        cwd=scene.directory,
        env=scene.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert re.search(says, output), output
