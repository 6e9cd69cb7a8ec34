"""What runs in and for the images: pinned bases, the bill of materials, the health check."""

import json
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from tests.docker.commands import run
from tests.support.certificates import Authority
from tests.support.daemon import Daemon

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
FILES = sorted(DOCKER.glob("*.Dockerfile"))


def test_bases_are_pinned_and_pinned_anew(tmp_path: Path) -> None:
    """Each image of a registry gets its digest, once; a registry's own command says which."""
    for path in (*FILES, DOCKER / "compose.yml", DOCKER / "pin.sh"):
        shutil.copy(path, tmp_path)
    for digest in ("a" * 64, "b" * 64):
        (tmp_path / "docker").write_text(f"#!/bin/sh\n[ $1 = buildx ] && echo sha256:{digest}\n")
        (tmp_path / "docker").chmod(0o755)

        environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        done = subprocess.run(["sh", tmp_path / "pin.sh"], env=environ, check=True, capture_output=True, text=True)

        assert re.findall(r"docker.io/(\S+?:)", done.stdout) == [
            "grafana/grafana:",
            "library/python:",
            "prom/prometheus:",
        ]
        texts = [path.read_text() for path in (*tmp_path.glob("*.Dockerfile"), tmp_path / "compose.yml")]
        assert sum(text.count(f"@sha256:{digest}") for text in texts) == 7
        assert sum(text.count("@sha256:") for text in texts) == 7


def test_an_image_lists_what_is_in_it(tmp_path: Path) -> None:
    """Every package by its purl, with the version that is installed; the file is valid JSON of CycloneDX."""
    done = run(str(DOCKER / "sbom.py"), str(tmp_path / "sbom.json"))
    bill = json.loads((tmp_path / "sbom.json").read_text())

    assert (done.returncode, done.stderr) == (0, "")
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    found = {component["purl"]: component for component in bill["components"]}
    assert len(found) == len(bill["components"])
    msgspec = found[f"pkg:pypi/msgspec@{metadata.version('msgspec')}"]
    assert msgspec["name"] == "msgspec"


def well(*path: str, **environ: str) -> tuple[int, str]:
    """What the images' health check says: exit code and output."""
    done = run("-I", str(DOCKER / "healthcheck.py"), *path, **environ)
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    "demand", [[], ["--tls-mode=enforcing", "--tls-client-auth=require"], ["--http-tls-client-auth=require"]], ids=str
)
def test_the_health_check_over_tls(tmp_path: Path, demand: list[str]) -> None:
    """The certificate need not be of the loopback address; where HTTPS demands one of its clients, it is shown."""
    ca = Authority(tmp_path)
    issued = ca.issue("server", "namesrv.example")
    tls = (f"--tls-cert-file={issued.cert_file}", f"--tls-key-file={issued.key_file}", f"--tls-ca-file={ca.ca_file}")
    with Daemon(tmp_path / "data", "--http-listen", "127.0.0.1:0", "--http-tls", *tls, *demand) as daemon:
        at = {"NAMESRV_HTTP_LISTEN": "{}:{}".format(*daemon.http_address), "NAMESRV_HTTP_TLS": "true"}
        shown = {"NAMESRV_TLS_CERT_FILE": str(issued.cert_file), "NAMESRV_TLS_KEY_FILE": str(issued.key_file)}
        if "--http-tls-client-auth=require" in demand:
            assert well(**at)[0] == 1
            assert well(**at, NAMESRV_HTTP_TLS_CLIENT_AUTH="require")[0] == 1
            at |= {"NAMESRV_HTTP_TLS_CLIENT_AUTH": "require"} | shown
        assert well(**at) == (0, "")
        assert well(**{**at, "NAMESRV_HTTP_TLS": ""})[0] == 1


def test_the_health_check_of_a_server(tmp_path: Path) -> None:
    """Well while it serves, with the reason when it does not."""
    with Daemon(tmp_path, "--http-listen", "127.0.0.1:0") as daemon:
        port = daemon.http_address[1]
        listen = f"0.0.0.0:{port}"

        assert well(NAMESRV_HTTP_LISTEN=listen) == (0, "")
        assert well("/readyz", NAMESRV_HTTP_LISTEN=listen) == (0, "")
        code, said = well("/nowhere", NAMESRV_HTTP_LISTEN=listen)
        assert code == 1
        assert said.startswith(f"http://127.0.0.1:{port}/nowhere: HTTP Error 404")
        daemon.stop()
        code, said = well(NAMESRV_HTTP_LISTEN=listen)
        assert code == 1
        assert "refused" in said
