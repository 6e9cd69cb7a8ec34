"""Installed wheels: each one alone in an environment works as documented."""

import compileall
import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from tests.support.daemon import Daemon
from tests.support.printing_process import PrintingProcess
from tools import dist

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("installs")]

ROOT = Path(__file__).parents[2]


class Environment:
    """A virtual environment with one of our wheels and its dependencies."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.bin = directory / "bin"
        (self._packages,) = directory.glob("lib/python*/site-packages")

    def distributions(self) -> set[str]:
        """Names of the installed distributions."""
        return {path.name.split("-")[0] for path in self._packages.glob("*.dist-info")}

    def size(self) -> int:
        """Size in bytes, with the bytecode that pip compiles."""
        compileall.compile_dir(self._packages, quiet=2)
        return sum(path.stat().st_size for path in self._packages.rglob("*") if path.is_file())

    def run(self, program: str, *arguments: str | Path, code: int = 0, **environ: str) -> str:
        """Output of a command, which must end with this code."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("NAMESRV_", "PYTHON"))}
        done = subprocess.run(
            [self.bin / program, *arguments],
            cwd=self._directory,
            env={**ours, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout
        return done.stdout


Install = Callable[..., Environment]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output directory of `make dist`."""
    directory = tmp_path_factory.mktemp("dist")
    subprocess.run(["sh", "locks/add.sh", "dist"], cwd=ROOT, check=True)
    for module in ("tools.dist", "tools.sbom"):
        subprocess.run([sys.executable, "-m", module, directory], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return directory


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Install:
    """A function that makes an environment for some wheels, once."""
    made: dict[tuple[str, ...], Environment] = {}

    def install(*wheels: str) -> Environment:
        if wheels not in made:
            directory = tmp_path_factory.mktemp("-".join(wheels))
            venv.create(directory)
            pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", directory / "bin/python"]
            command = [*pip, "--disable-pip-version-check", "--quiet", "install", "--no-compile", "--requirement"]
            for wheel in wheels:
                subprocess.run([*command, built / f"{wheel}.txt"], check=True)
            made[wheels] = Environment(directory)
        return made[wheels]

    return install


@pytest.fixture(scope="module")
def daemon(installed: Install, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A NameServer from the wheel `namesrv`."""
    data = tmp_path_factory.mktemp("data")
    with Daemon(data, "--http-listen=127.0.0.1:0", program=installed("namesrv").bin / "namesrv") as daemon:
        yield daemon.listening()


@pytest.fixture(scope="module")
def agent(installed: Install, daemon: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A broker with a topic, registered by the wheel `namesrv-agent`."""
    config = tmp_path_factory.mktemp("agent") / "agent.toml"
    config.write_text((ROOT / "broker_agent/examples/agent.toml").read_text().replace("127.0.0.1:9876", daemon.where))
    with PrintingProcess(str(installed("namesrv-agent").bin / "namesrv-broker-agent"), "--config", str(config)):
        daemon.wait_for("broker_registered", broker_name="broker-a")
        yield


def test_server_serves_health_and_metrics(daemon: Daemon) -> None:
    """The wheel contains everything for a server in production."""
    assert "nameserver_brokers" in httpx2.get("http://{}:{}/metrics".format(*daemon.http_address)).text
    assert daemon.lines("http_is_off") == []


CLIENT = """
import sys
from namesrv_client import SyncRouteClient

with SyncRouteClient([sys.argv[1]]) as client:
    print(*client.route("orders").brokers)
"""


@pytest.mark.usefixtures("agent")
def test_client_finds_a_route(installed: Install, daemon: Daemon) -> None:
    """The client finds the broker registered by the agent."""
    assert installed("namesrv-client").run("python", "-c", CLIENT, daemon.where) == "broker-a\n"


@pytest.mark.parametrize("library", ["namesrv-client", "namesrv-agent"])
def test_libraries_contain_neither_server_nor_report(installed: Install, library: str) -> None:
    """A library needs only the wire package and its dependencies, at most 12.5 MB."""
    environment = installed(library)

    wire = {"namesrv_wire", "msgspec", "pydantic", "pydantic_core", "annotated_types", "typing_extensions"}
    assert environment.distributions() == {*wire, "typing_inspection", library.replace("-", "_")}
    assert environment.size() <= 12_500_000


@pytest.mark.usefixtures("agent")
def test_namesrvctl_shows_servers(installed: Install, daemon: Daemon) -> None:
    """The README's command works."""
    assert "broker-a" in installed("namesrv-ctl").run("namesrvctl", "brokers", NAMESRV_ADDR=daemon.where, COLUMNS="200")


@pytest.mark.usefixtures("agent")
def test_console_serves_its_page(installed: Install, daemon: Daemon) -> None:
    """The page contains the broker."""
    program = installed("namesrv-console").bin / "namesrv-console"
    with PrintingProcess(str(program), "--listen=127.0.0.1:0", "--server", daemon.where) as console:
        url = console.wait_for(r"^namesrv-console: http://\S+/$").removeprefix("namesrv-console: ")
        assert daemon.where in httpx2.get(url).text


@pytest.mark.usefixtures("agent")
def test_console_image_shows_the_past(installed: Install, daemon: Daemon) -> None:
    """The image has every wheel that the console needs for `--logs`, which the chart sets."""
    lines = (ROOT / "docker/console.Dockerfile").read_text().splitlines()
    (wheels,) = [line.rstrip("\\").split()[5:] for line in lines if "tools.dist /wheels" in line]
    program = str(installed(*wheels).bin / "namesrv-console")
    logs = f"--logs={daemon.data_dir / 'heartbeats'}"
    with PrintingProcess(program, "--listen=127.0.0.1:0", "--server", daemon.where, logs) as console:
        url = console.wait_for(r"^namesrv-console: http://\S+/$").removeprefix("namesrv-console: ")

        assert "broker-a" in httpx2.get(f"{url}timeline?wait=1", timeout=60).text


@pytest.mark.usefixtures("agent")
def test_report_is_made_without_java(installed: Install, daemon: Daemon, tmp_path: Path) -> None:
    """The report of the server's log is written."""
    logs = daemon.data_dir / "heartbeats"
    installed("namesrv-report").run("namesrv-staleness", logs, "--out", tmp_path / "report", PATH="/nonexistent")

    assert (tmp_path / "report/report.html").is_file()


@pytest.mark.usefixtures("agent")
def test_history_reads_logs_with_the_report(installed: Install, daemon: Daemon) -> None:
    """The wheel namesrv-report is all that `namesrvctl history` needs for logs."""
    history = ("history", "orders", "--logs", daemon.data_dir, "-o", "json")

    assert "broker-a" in installed("namesrv-ctl", "namesrv-report").run("namesrvctl", *history)


KIT = """
def test_a_broker_is_registered(namesrv, namesrv_broker):
    namesrv_broker("broker-a", ["orders"])
    assert namesrv.broker_names == {"broker-a"}
"""


def test_kit_has_pytest_fixtures(installed: Install, tmp_path: Path) -> None:
    """The fixtures need no conftest.py."""
    (tmp_path / "test_it.py").write_text(KIT)

    assert "1 passed" in installed("namesrv-testing").run("pytest", "-q", "-p", "no:cacheprovider", tmp_path)


WHEELS = dist.wheels(dist.read_project())


@pytest.mark.parametrize("wheel", sorted(WHEELS.keys() - {"namesrv-wire"}))
def test_every_installed_command_runs(installed: Install, wheel: str) -> None:
    """Commands of the wheel and of the wheels that it needs print their help."""
    environment = installed(wheel)
    ours = {path.name for path in environment.bin.glob("namesrv*")}

    assert WHEELS[wheel]["project"]["scripts"].keys() <= ours
    assert [name for name in ours if "usage" not in environment.run(name, "--help").lower()] == []


@pytest.mark.parametrize("wheel", sorted(WHEELS.keys() - {"namesrv-wire"}))
def test_bill_of_materials_lists_installed_packages(installed: Install, built: Path, wheel: str) -> None:
    """Every installed package is listed; packages for other systems are listed, too."""
    bill = json.loads((built / f"{wheel}-{WHEELS[wheel]['project']['version']}.cdx.json").read_text())
    named = {part["name"].replace("-", "_") for part in (*bill["components"], bill["metadata"]["component"])}

    assert {name.lower() for name in installed(wheel).distributions()} <= named


REMEDY = "is not installed; in a clone make setup brings it, elsewhere pip install -r {}.txt of make dist"


@pytest.mark.parametrize(
    ("wheel", "command", "message"),
    [
        ("namesrv-ctl", "namesrvctl history orders --logs .", f"namesrv_spark_jobs {REMEDY.format('namesrv-report')}"),
        ("namesrv-console", "namesrvctl history orders --logs .", f"namesrv_spark_jobs {REMEDY.format('namesrv-report')}"),
        ("namesrv", "namesrv --check-config --heartbeat-log-compact=keep", "needs namesrv-report, which is not installed"),
    ],
)
def test_missing_wheel_is_named(installed: Install, wheel: str, command: str, message: str) -> None:
    """A command that needs another wheel names it and exits with 2."""
    program, *arguments = command.split()
    assert message in " ".join(installed(wheel).run(program, *arguments, code=2, COLUMNS="300").split())
