"""The Dockerfiles keep the rules of docker/README.md, and the health check tells well from unwell."""

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


def instructions(path: Path) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile: word and argument, continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def last_stage(path: Path) -> dict[str, str]:
    """Of the stage that becomes the image: instruction -> its last argument."""
    found = instructions(path)
    start = max(number for number, (word, _) in enumerate(found) if word == "FROM")
    return dict(found[start:])


def test_there_are_five() -> None:
    """The daemon, the agent, the console, the report, and the report with Spark."""
    assert ["broker-agent", "console", "namesrv", "report", "spark"] == [path.stem for path in FILES]


def test_the_chart_names_images_that_there_are() -> None:
    """By the title that each has."""
    titles = {str(re.search(r'image.title="([^"]+)"', last_stage(path)["LABEL"])[1]) for path in FILES}  # type: ignore[index]
    values = (ROOT / "deploy/helm/namesrv/values.yaml").read_text(encoding="utf-8")

    assert {"namesrv", "namesrv-console", "namesrv-report"} == set(re.findall(r"repository: (\S+)", values)) & titles


def test_bases_are_pinned_and_pinned_anew(tmp_path: Path) -> None:
    """Each image of a registry gets its digest, once; a registry's own command says which."""
    for path in (*FILES, DOCKER / "compose.yml", DOCKER / "pin.sh"):
        shutil.copy(path, tmp_path)
    for digest in ("a" * 64, "b" * 64):
        (tmp_path / "docker").write_text(f"#!/bin/sh\n[ $1 = buildx ] && echo sha256:{digest}\n")
        (tmp_path / "docker").chmod(0o755)

        environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        done = subprocess.run(["sh", tmp_path / "pin.sh"], env=environ, check=True, capture_output=True, text=True)

        assert ["grafana/grafana:", "library/python:", "prom/prometheus:"] == re.findall(
            r"docker.io/(\S+?:)", done.stdout
        )
        texts = [path.read_text() for path in (*tmp_path.glob("*.Dockerfile"), tmp_path / "compose.yml")]
        assert 7 == sum(text.count(f"@sha256:{digest}") for text in texts)
        assert 7 == sum(text.count("@sha256:") for text in texts)


@pytest.mark.parametrize("path", sorted(DOCKER.glob("compose*.yml")), ids=lambda path: path.stem)
def test_compose_runs_our_own_images_and_pinned_ones(path: Path) -> None:
    """What is not built here is the same everywhere, and always."""
    images = re.findall(r"^ +image: (.*)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)

    pinned = re.compile(r"namesrv[a-z-]*:local|\$\{[A-Z_]+:-\S+:v?\d+\.\d+\.\d+@sha256:[0-9a-f]{64}\}")
    assert images
    assert [] == [image for image in images if not pinned.fullmatch(image)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_image_keeps_the_rules(path: Path) -> None:
    """Both stages stand on one base, an argument with a full version, so that a virtual environment can be copied.

    What comes from an index is checked by hash, and everything else comes from what was checked. It runs as a number,
    since who runs it could not check a name, and ends on SIGTERM, which a shell would swallow.
    """
    found, image = instructions(path), last_stage(path)

    assert found[0][0] == "ARG"
    assert re.fullmatch(r"BASE_IMAGE=\S+:\d+\.\d+\.\d+-[^@\s]+@sha256:[0-9a-f]{64}", found[0][1])
    assert ["${BASE_IMAGE} AS build", "${BASE_IMAGE}"] == [value for word, value in found if word == "FROM"]
    for call in re.findall(r"-m pip (.*?)(?:&&|$)", " ".join(value for word, value in found if word == "RUN")):
        assert "--require-hashes --requirement locks/" in call or "--no-index" in call, call
    assert ("10001:10001", "SIGTERM") == (image["USER"], image["STOPSIGNAL"])
    assert all(isinstance(json.loads(image[word]), list) for word in ("ENTRYPOINT", "CMD", "VOLUME") if word in image)
    assert re.search(r"CMD\s+\[", image["HEALTHCHECK"]) or image["HEALTHCHECK"] == "NONE"
    for label in ("title", "description", "licenses", "version", "revision"):
        assert f"org.opencontainers.image.{label}=" in image["LABEL"]
    assert 'namesrv.sbom="/opt/namesrv/sbom.cdx.json"' in image["LABEL"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_is_copied_is_there_and_not_ignored(path: Path) -> None:
    """.dockerignore lets through what the images are built from."""
    let_through = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sources = {source for word, value in instructions(path) if word == "COPY" for source in value.split()[:-1]}
    sources -= {"/opt/namesrv"}
    for source in sources - {"--from=build", "."}:
        assert (ROOT / source).exists(), source
        assert any(f"!{part}" in let_through for part in (source, *map(str, Path(source).parents))), source


def test_an_image_lists_what_is_in_it(tmp_path: Path) -> None:
    """Every package by its purl, with the version that is installed; the file is valid JSON of CycloneDX."""
    done = run(str(DOCKER / "sbom.py"), str(tmp_path / "sbom.json"))
    bill = json.loads((tmp_path / "sbom.json").read_text())

    assert (0, "") == (done.returncode, done.stderr)
    assert ("CycloneDX", "1.6") == (bill["bomFormat"], bill["specVersion"])
    found = {component["purl"]: component for component in bill["components"]}
    assert len(found) == len(bill["components"])
    msgspec = found[f"pkg:pypi/msgspec@{metadata.version('msgspec')}"]
    assert "msgspec" == msgspec["name"]


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
            assert 1 == well(**at)[0]
            assert 1 == well(**at, NAMESRV_HTTP_TLS_CLIENT_AUTH="require")[0]
            at |= {"NAMESRV_HTTP_TLS_CLIENT_AUTH": "require"} | shown
        assert (0, "") == well(**at)
        assert 1 == well(**{**at, "NAMESRV_HTTP_TLS": ""})[0]


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
