"""The worked example of docs/deploying.md: three NameServers, two brokers, clients, an operator.

Every file and command comes from the page. Parts of a real machine have stand-ins: `ssh HOST` runs a command in that
host's namespace, `sudo` runs it, and `systemctl` is tests/netns/service.sh.
"""

import json
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

from tests.netns.network import Host, Network
from tests.support.pages import ROOT, example
from tests.support.peer import until
from tests.support.printing_process import PrintingProcess

PAGE: Final = "docs/deploying.md"
SERVERS: Final = ("ns1", "ns2", "ns3")
# A server that is added later.
NEW_SERVER: Final = "ns4"
BROKERS: Final = ("broker-a", "broker-b")
_NUMBERS: Final = ((11, (*SERVERS, NEW_SERVER)), (21, BROKERS), (31, ("app1", "app2")), (41, ("ops",)))
HOSTS: Final = {name: f"10.0.0.{first + number}" for first, names in _NUMBERS for number, name in enumerate(names)}
_SCRIPTS: Final = ROOT / "tests" / "netns"
_SSH: Final = """#!/bin/sh
# ssh HOST COMMAND...: in that host's namespace; as with the real one, its words are joined and read by a shell there
host=$1
shift
export HOST="$host"
exec ip netns exec "$PREFIX-$host" sh -c "$*"
"""
_SUDO: Final = '#!/bin/sh\nexec "$@"\n'
# `systemd-run OPTION... COMMAND...`: runs the command with the variables of the EnvironmentFile.
_SYSTEMD_RUN: Final = """#!/bin/sh
set -aeu
while [ "${1#--}" != "$1" ]; do
    case $1 in --property=EnvironmentFile=*) . "${1##*=}" ;; esac
    shift
done
exec "$@"
"""
# `python3 -m venv DIRECTORY`: makes an environment with the version under test, and a pip that records its arguments.
_PYTHON3: Final = f"""#!/bin/sh
set -eu
mkdir -p "$3/bin"
ln -s "{Path(sys.executable).parent}/namesrv" "$3/bin/namesrv"
printf '#!/bin/sh\\necho "$@" >>"$(dirname "$0")/pip.arguments"\\n' >"$3/bin/pip"
chmod +x "$3/bin/pip"
"""
# The longest command takes a hundredth of this time on an idle machine.
_COMMAND_SECONDS: Final = 900


class Application(PrintingProcess):
    """tests/netns/application.py on a host."""

    def wait_until_it_leaves(self, server: str) -> None:
        """Return as soon as the application uses another server."""
        self.wait_until(lambda: server not in [line for line in self.lines if line.startswith("asks ")][-1])

    def end(self) -> dict[str, Any]:
        """Stop the application; return its results."""
        assert self.stop() == 0, self.lines
        seen: dict[str, Any] = json.loads(self.lines[-1])
        return seen


class Deployment:
    """The running example, as a context manager."""

    def __init__(self, directory: Path, *settings: str) -> None:
        # More lines for namesrv.env, for tests that need short times.
        self._settings = settings
        self._directory = directory
        self._stack = ExitStack()
        self.network = Network()
        name_servers = re.search("'(.*)'", example(PAGE, "environment"))
        assert name_servers is not None
        self.name_servers = name_servers[1]
        # The server lists of brokers and clients: the page's, until `lists` changes them.
        self._server_lists = {"brokers": self.name_servers, "clients": self.name_servers}

    def __enter__(self) -> Self:
        """Make the hosts, without processes on them."""
        with self._stack as starting:
            starting.enter_context(self.network)
            self.network.add(HOSTS)
            self._make_commands()
            for name in (*SERVERS, NEW_SERVER):
                self._make_service(self.host(name))
            self._stack = starting.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        """End everything."""
        self._stack.close()

    def host(self, name: str) -> Host:
        """The host with this name."""
        return self.network.hosts[name]

    # -- processes ----------------------------------------------------------------------------------------------------

    def lists(self, who: str, *servers: str) -> None:
        """Let the brokers or the clients read their server list from a file with this content."""
        path = self._directory / f"{who}.list"
        new = path.with_suffix(".new")
        new.write_text("".join(f"{name}:9876\n" for name in servers))
        new.replace(path)
        self._server_lists[who] = f"file:{path}"

    def start_servers(self) -> None:
        """Start the three NameServers."""
        for name in SERVERS:
            self.run(f"ssh {name} sudo systemctl start namesrv")

    def start_broker(self, name: str, *settings: str) -> PrintingProcess:
        """Start a broker's side-car, with more lines for its agent.toml."""
        text = example(PAGE, "agent.toml").replace("broker-a", name).replace(HOSTS["broker-a"], HOSTS[name])
        text = text.replace(self.name_servers, self._server_lists["brokers"])
        config = self._directory / f"{name}.toml"
        config.write_text("\n".join((*settings, text)))
        command = self.host(name).command(sys.executable, "-m", "namesrv_broker_agent", "--config", str(config))
        return self._stack.enter_context(PrintingProcess(*command))

    def start_application(self, name: str, kind: str) -> Application:
        """Start an application that pulls continuously; return after its first complete route."""
        script = str(_SCRIPTS / "application.py")
        command = self.host(name).command(sys.executable, script, kind, str(len(BROKERS)))
        environ = {
            "NAME_SERVERS": self._server_lists["clients"],
            "PYTHONPATH": str(ROOT),
        }
        started = Application(*command, **environ)
        self._stack.enter_context(started)
        started.wait_for("^ready$")
        return started

    def run(self, script: str, *, code: int = 0) -> str:
        """Run a script of the page on `ops`; return its output."""
        command = self.host("ops").command("sh", "-c", script)
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_COMMAND_SECONDS, env=self._environ(), check=False
        )
        assert done.returncode == code, f"{script}\n-- exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def run_example(self, name: str, *, code: int = 0) -> str:
        """Run a script of the page, with the hosts' paths in place of a real machine's."""
        text = example(PAGE, name)
        for place in ("/etc/namesrv/", "/opt/"):
            text = text.replace(place, "$SERVICES/$host/")
        return self.run(text, code=code)

    def until(self, command: str) -> None:
        """Run a command on `ops` until it exits with 0, as on the page."""
        self.run(f'timeout 300 sh -c "until {command} >/dev/null; do sleep 0.1; done"')

    # -- logs ---------------------------------------------------------------------------------------------------------

    def directory(self, name: str) -> Path:
        """The files of a NameServer."""
        return self._directory / name

    def log(self, name: str, event: str, **fields: object) -> list[dict[str, Any]]:
        """Lines of an event with these fields in a NameServer's log, of all its boots."""
        here = self.directory(name)
        text = "".join(path.read_text() for path in (here / "log", here / "log.now") if path.exists())
        # The last line may be incomplete.
        lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [line for line in lines if line["event"] == event and fields.items() <= line.items()]

    def wait_for_eviction(self, name: str, **fields: object) -> None:
        """Return once a NameServer has logged the eviction of a broker with these fields."""
        until(lambda: self.log(name, "broker_evicted", **fields))

    # -- files --------------------------------------------------------------------------------------------------------

    def _make_service(self, host: Host) -> None:
        here = self.directory(host.name)
        here.mkdir()
        # Each version has a directory; a link marks the current version.
        (here / "namesrv-1").symlink_to(Path(sys.executable).parent.parent)
        (here / "namesrv").symlink_to(here / "namesrv-1")
        text = example(PAGE, "namesrv.env").replace("=ns1", f"={host.name}").replace(HOSTS["ns1"], host.address)
        (here / "namesrv.env").write_text("\n".join((text, *self._settings)))

    def _make_commands(self) -> None:
        self._bin = self._directory / "bin"
        self._bin.mkdir()
        for name, text in (("ssh", _SSH), ("sudo", _SUDO), ("systemd-run", _SYSTEMD_RUN), ("python3", _PYTHON3)):
            (self._bin / name).write_text(text)
            (self._bin / name).chmod(0o755)
        (self._bin / "systemctl").symlink_to(_SCRIPTS / "service.sh")

    def _environ(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("NAMESRV_")}
        path = os.pathsep.join((str(self._bin), str(Path(sys.executable).parent), kept["PATH"]))
        return {**kept, "PATH": path, "PREFIX": self.network.prefix, "SERVICES": str(self._directory)}
