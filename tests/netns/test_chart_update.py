"""A rolling update of the Helm chart, rehearsed: its settings, commands and probes, in the order of a StatefulSet."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.netns.deployment import HOSTS, SERVERS, Deployment
from tests.netns.test_rolling_restart import counted, run_everything
from tools.chart_check import rendered, tool

# a question that crosses the closing of its connection is lost
_CROSSED: Final = {"EOFError", "ConnectionResetError"}


class Kubelet:
    """What a kubelet and the StatefulSet's controller do with the pods; `ns1` to `ns3` are ordinals 0 to 2."""

    def __init__(self, deployment: Deployment, manifests: str) -> None:
        documents = {document["kind"]: document for document in yaml.safe_load_all(manifests) if document}
        self._deployment = deployment
        self._settings: str = documents["ConfigMap"]["data"]["namesrv.toml"]
        self._set: dict[str, Any] = documents["StatefulSet"]["spec"]
        self._pod: dict[str, Any] = self._set["template"]["spec"]
        (self._container,) = self._pod["containers"]

    def mount(self, name: str) -> None:
        """Give a server its settings and arguments."""
        here = self._deployment.directory(name)
        (here / "namesrv.toml").write_text(self._settings)
        words = " ".join(self._container["args"]).replace("/etc/namesrv", str(here))
        (here / "namesrv.env").write_text(f"NAMESRV_NAMESERVER_NAME={name}\nARGUMENTS='{words}'\n")

    def update(self) -> None:
        """Replace each pod, from the highest ordinal down, when the one before has been ready for long enough."""
        for name in reversed(SERVERS):
            self._stop(name)
            self._deployment.run(f"ssh {name} systemctl start namesrv")
            self._probe(name, "startupProbe")
            self._probe(name, "readinessProbe")
            # as long as the pods themselves would wait
            self._deployment.run(f"sleep {self._set['minReadySeconds']}")

    def _stop(self, name: str) -> None:
        command = self._container["lifecycle"]["preStop"]["exec"]["command"]
        assert "/opt/namesrv/bin/python" == command[0]
        done = self._deployment.host(name).command(sys.executable, *command[1:])
        subprocess.run(done, check=True, timeout=60)
        # SIGKILL would come after this time, preStop included
        self._deployment.run(f"timeout {self._pod['terminationGracePeriodSeconds']} ssh {name} systemctl stop namesrv")

    def _probe(self, name: str, kind: str) -> None:
        probe = self._container[kind]
        ports = {port["name"]: port["containerPort"] for port in self._container["ports"]}
        url = f"http://{HOSTS[name]}:{ports[probe['httpGet']['port']]}{probe['httpGet']['path']}"
        pause = probe["periodSeconds"]
        self._deployment.run(f"timeout 120 sh -c 'until curl --silent --fail {url}; do sleep {pause}; done'")


@pytest.mark.slow
def test_rolling_update_of_the_chart(deploy: Callable[..., Deployment], tmp_path: Path) -> None:
    """No pull fails, no route lacks a broker, no broker is evicted, and each server ends by itself, in time."""
    deployment = deploy()
    kubelet = Kubelet(deployment, rendered(tool("helm", tmp_path), ["drainSeconds=3"]))
    for name in SERVERS:
        kubelet.mount(name)
    applications = run_everything(deployment)

    kubelet.update()

    for server in SERVERS:
        assert 2 == len(deployment.log(server, "listening"))
        assert 1 == len(deployment.log(server, "stopped"))
        assert [] == deployment.log(server, "broker_evicted")
    for application in applications:
        seen = counted(application)
        assert set(seen["repeated"]) <= _CROSSED
        assert len(seen["servers"]) > 1
