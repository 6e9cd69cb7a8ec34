"""The Helm chart: valid for Kubernetes' schemas and a policy checker, with pods that start."""

import asyncio
import http.client
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from namesrv.settings.model import Settings
from tests.support.certificates import Authority
from tests.support.http_peer import ask
from tests.support.in_process import namesrv_in_process
from tests.support.ports import free_port
from tests.support.printing_process import PrintingProcess
from tools.chart_check import TOOLS, VARIANTS, ChartError, check, rendered, tool

UNIT = Path(__file__).parents[2] / "docker/systemd/namesrv-console.service"
# The manifests that the first test compares with the chart.
PLAIN = Path(__file__).parents[2] / "deploy/kubernetes"

# The tools are built from source first, which takes minutes: by one worker.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("chart")]


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The helm program."""
    return tool("helm", tmp_path_factory.mktemp("helm"))


def by_kind(manifests: str) -> Mapping[str, Any]:
    """One manifest of each kind: the servers', which come first by name."""
    documents = [document for document in yaml.safe_load_all(manifests) if document]
    return {document["kind"]: document for document in reversed(documents)}


@pytest.mark.parametrize("name", TOOLS)
def test_tool_is_built(tmp_path: Path, name: str) -> None:
    """Each build has a test of its own: on a busy machine all of them together take longer than a test may.

    Go caches the builds for the tests below.
    """
    assert tool(name, tmp_path).is_file()


def test_all_checks(tmp_path: Path) -> None:
    """`make chart-check` succeeds."""
    check(tmp_path, write=False)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("replica=3", "replica"),
        ("tls.mode=on", "tls.mode"),
        ("tls.mode=enforcing", "tls.secret is required"),
        ("tls.mode=enforcing,tls.secret=t,tls.crl.secret=c", "tls.crl.secret has a revocation list of client"),
        ("settings.tls_crl_file=/tmp/crl", "settings.tls_crl_file is set by the chart"),
        ("settings.listen_port=1", "settings.listen_port is set by the chart"),
        ("settings.http_tls=true", "settings.http_tls is not supported"),
        ("console.enabled=true", "console.usersSecret"),
        ("console.enabled=true,console.usersSecret=u", "console.publicUrl"),
        (
            "console.enabled=true,console.usersSecret=u,console.publicUrl=https://c,tls.mode=enforcing,tls.secret=t",
            "console.tlsSecret",
        ),
        ("report.enabled=true", "heartbeatLogs.existingClaim"),
    ],
)
def test_wrong_value_is_refused(helm: Path, value: str, problem: str) -> None:
    """The error names the value, and nothing is rendered."""
    with pytest.raises(ChartError) as raised:
        rendered(helm, [value])

    assert problem in str(raised.value).replace("/", ".")


@pytest.mark.parametrize("variant", ["plain", "ipv6", "all"])
def test_server_accepts_its_settings(helm: Path, tmp_path: Path, variant: str) -> None:
    """The daemon validates the pod's settings, with certificate, revocation list and access file of the secrets."""
    text = by_kind(rendered(helm, VARIANTS[variant]))["ConfigMap"]["data"]["namesrv.toml"]
    for name in ("access", "tls", "crl", "views"):
        (tmp_path / name).mkdir()
    authority = Authority(tmp_path)
    issued = authority.issue("server")
    authority.revocation_list().rename(tmp_path / "crl/crl.pem")
    for file, name in ((issued.cert_file, "tls.crt"), (issued.key_file, "tls.key"), (authority.ca_file, "ca.crt")):
        file.rename(tmp_path / "tls" / name)
    (tmp_path / "access/access.toml").write_text('[accounts.all]\nnetworks = ["0.0.0.0/0"]\nmay = ["route-read"]\n')
    (tmp_path / "views/views.toml").write_text('[[views]]\nname = "outside"\nothers = "hide"\n')
    config = tmp_path / "namesrv.toml"
    config.write_text(text.replace("/etc/namesrv", str(tmp_path)).replace("/var/log", str(tmp_path)))

    done = subprocess.run(
        [sys.executable, "-m", "namesrv", "--config", config, "--data-dir", tmp_path, "--check-config"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    settings = tomllib.loads(text)
    assert settings["listen_host"] == "0.0.0.0,::"
    assert settings["http_listen"] == ("[::]:9877" if variant == "ipv6" else "0.0.0.0:9877")
    assert settings.get("tls_crl_file") == ("/etc/namesrv/crl/crl.pem" if variant == "all" else None)


def test_only_nameservers_are_scraped(helm: Path) -> None:
    """A scrape of the console would fail, and raise the alert on a server that is down."""
    documents = [document for document in yaml.safe_load_all(rendered(helm, VARIANTS["all"])) if document]
    (monitor,) = [one["spec"] for one in documents if one["kind"] == "ServiceMonitor"]
    (scraped_port,) = [one["port"] for one in monitor["endpoints"]]

    assert [
        one["metadata"]["name"]
        for one in documents
        if one["kind"] == "Service"
        and monitor["selector"]["matchLabels"].items() <= one["metadata"]["labels"].items()
        and scraped_port in [port["name"] for port in one["spec"]["ports"]]
    ] == ["mq-namesrv"]


def test_memory_limit_exceeds_the_budget_of_the_server(helm: Path) -> None:
    """A server whose budget is used up refuses further frames; the limit must not kill it before."""
    (pod,) = by_kind(rendered(helm, VARIANTS["plain"]))["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    limit_mib = int(pod["resources"]["limits"]["memory"].removesuffix("Mi"))

    assert limit_mib - Settings(data_dir=Path()).max_memory_bytes / 2**20 >= 256


def test_console_may_take_the_memory_of_its_unit(helm: Path) -> None:
    """Reading logs takes the memory that the systemd unit allows."""
    (pod,) = by_kind(rendered(helm, VARIANTS["all"]))["Deployment"]["spec"]["template"]["spec"]["containers"]
    (unit,) = re.findall(r"^MemoryMax=(\d+G)$", UNIT.read_text(), re.MULTILINE)

    assert "--logs=/var/log/namesrv" in pod["args"]
    assert pod["resources"]["limits"]["memory"] == f"{unit}i"


def test_changed_secrets_reach_running_pods(helm: Path) -> None:
    """Kubernetes never updates a file mounted by `subPath`; a checksum of the settings replaces their pods."""
    manifests = by_kind(rendered(helm, VARIANTS["all"]))
    pods = [manifests[kind]["spec"]["template"]["spec"] for kind in ("StatefulSet", "Deployment")]

    assert [mount["name"] for pod in pods for mount in pod["containers"][0]["volumeMounts"] if "subPath" in mount] == [
        "settings"
    ]


async def test_server_answers_its_probes(tmp_path: Path) -> None:
    """A server that waits for its brokers is alive, so that Kubernetes does not restart it, and not ready."""
    manifests = by_kind((PLAIN / "namesrv-plain.yaml").read_text())
    (pod,) = manifests["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    (tmp_path / "snapshot.json").write_text("damaged")

    async with namesrv_in_process(tmp_path, http_listen="127.0.0.1:0") as server:
        (address,) = server.controller.http.pages

        async def statuses() -> dict[str, int]:
            paths = {name: pod[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
            return {name: (await asyncio.to_thread(ask, address, path)).status for name, path in paths.items()}

        assert await statuses() == {"startup": 200, "liveness": 200, "readiness": 503}
        await server.clock.advance(45)
        assert await statuses() == {"startup": 200, "liveness": 200, "readiness": 200}


@pytest.mark.parametrize("variant", ["console", "ipv6", "all"])
def test_console_accepts_its_arguments(helm: Path, tmp_path: Path, variant: str) -> None:
    """The console starts with the pod's arguments beyond loopback and answers the probe; it uses TLS if servers do."""
    manifests = by_kind(rendered(helm, VARIANTS[variant]))
    (pod,) = manifests["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert ("--tls" in pod["args"]) == ("tls_mode" in manifests["ConfigMap"]["data"]["namesrv.toml"])
    for name in ("tls", "users"):
        (tmp_path / name).mkdir()
    authority = Authority(tmp_path)
    issued = authority.issue("console")
    for file, name in ((issued.cert_file, "tls.crt"), (issued.key_file, "tls.key"), (authority.ca_file, "ca.crt")):
        file.rename(tmp_path / "tls" / name)
    port = free_port()
    places = {name: str(tmp_path) for name in ("/etc/namesrv", "/var/lib/namesrv", "/var/log")}
    anywhere, loopback = ("[::]", "::1") if variant == "ipv6" else ("0.0.0.0", "127.0.0.1")
    places[f"{anywhere}:9878"] = f"{anywhere}:{port}"
    words = [word for word in pod["args"] if not word.startswith("--server")]
    for place, here in places.items():
        words = [word.replace(place, here) for word in words]
    passwd = [sys.executable, "-m", "namesrv_console", "passwd", str(tmp_path / "users/users.toml"), "olga"]
    subprocess.run(passwd, input="correct horse battery\n", text=True, check=True, capture_output=True)
    probe = pod["readinessProbe"]["httpGet"]
    headers = {header["name"]: header["value"] for header in probe["httpHeaders"]}

    with PrintingProcess(sys.executable, "-m", "namesrv_console", *words, "--server=127.0.0.1:1") as console:
        console.wait_for("https://console.example")
        connection = http.client.HTTPConnection(loopback, port, timeout=60)
        connection.request("GET", probe["path"], headers=headers)

        assert connection.getresponse().status == 200
        connection.close()
