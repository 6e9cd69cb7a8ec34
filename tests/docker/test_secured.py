"""compose.secured.yml: certificates and access file give each service its rights and no others."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from namesrv.settings.model import Settings
from tests.support import ctl
from tests.support.daemon import Daemon
from tests.support.printing_process import PrintingProcess

DOCKER = Path(__file__).parents[2] / "docker"
SECURED: dict[str, Any] = yaml.safe_load((DOCKER / "compose.secured.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = SECURED["services"]


def test_settings_are_valid() -> None:
    """An unknown variable would be ignored, and the server be open."""
    names = {name.removeprefix("NAMESRV_").lower() for name in SERVICES["namesrv-1"]["environment"]}

    assert {"tls_mode", "tls_client_auth", "access", "takeover"} <= names <= set(Settings.model_fields)


@pytest.mark.slow
def test_services_have_exactly_their_rights(tmp_path: Path) -> None:
    """Servers accept registrations from brokers, reads from applications and changes from operators only."""
    certificates = tmp_path / "tls"
    certificates.mkdir()
    make = (sys.executable, "-I", DOCKER / "secured/certificates.py", certificates)
    subprocess.run(make, check=True)
    made = {path.name: path.read_bytes() for path in certificates.iterdir()}

    def environ(service: str) -> dict[str, str]:
        here = {"/etc/namesrv/tls": str(certificates), "/etc/namesrv": str(DOCKER / "secured")}
        given: Mapping[str, str] = SERVICES[service]["environment"]
        for there, place in here.items():
            given = {name: value.replace(there, place) for name, value in given.items()}
        return dict(given)

    with Daemon(tmp_path / "data", environ=environ("namesrv-1")) as server:

        def code(service: str, *words: str) -> int:
            return ctl.run(*words, env=environ(service) | {"NAMESRV_ADDR": server.where}).code

        example = (sys.executable, str(DOCKER.parent / "demo/memory_broker.py"), "serve", "--cluster", "demo")
        known = environ("broker-a") | {"NAMESRV_ADDR": server.where}
        with PrintingProcess(*example, "--name", "broker-a", "--port", "0", "--topic", "orders", **known):
            server.wait_for("broker_registered")

            assert code("consumer", "route", "orders") == 0
            assert code("consumer", "kv", "put", "space", "key", "value") != 0
            assert code("operator", "kv", "put", "space", "key", "value") == 0
            assert ctl.run("-s", server.where, "status").code != 0

    # a second start of the demonstration keeps them
    subprocess.run(make, check=True)
    assert {path.name: path.read_bytes() for path in certificates.iterdir()} == made
    assert {path.stat().st_mode & 0o777 for path in certificates.glob("*.key")} == {0o600}
