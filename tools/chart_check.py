"""Checks the Helm chart: lint, manifests against Kubernetes' own schemas, policies, and the plain manifests.

Helm, kubeconform and kube-score are built from Go modules that are pinned by hash in deploy/check/, since PyPI has
neither linter. kube-score has a module of its own, since it cannot be built with the newer packages of Kubernetes that
Helm requires. The schemas come from the OpenAPI document of Kubernetes and from the CRDs of the Prometheus operator,
both Go modules, too.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

_ROOT: Final = Path(__file__).resolve().parents[1]
_CHART: Final = _ROOT / "deploy/helm/namesrv"
_CHECK: Final = _ROOT / "deploy/check"
_PLAIN: Final = _ROOT / "deploy/kubernetes"
TOOLS: Final = {
    "helm": ("helm", "helm.sh/helm/v3/cmd/helm"),
    "kubeconform": ("helm", "github.com/yannh/kubeconform/cmd/kubeconform"),
    "kube-score": ("score", "github.com/zegl/kube-score/cmd/kube-score"),
}
# The oldest supported version, and a new one.
_KUBERNETES: Final = ("v1.27.16", "v1.34.1")
_OPERATOR: Final = "v0.85.0"
# Checks of kube-score that the chart does not meet, with the reason.
_POLICIES_LEFT_OUT: Final = {
    "container-image-pull-policy": "Always makes a start depend on the registry; pin image.digest",
    "container-resources": "a CPU limit would throttle the one thread that serves; memory is limited",
    "pod-probes-identical": "the console's readiness and liveness are the same check: it needs no time to become ready",
    "deployment-replicas": "the console keeps its polls and sessions in memory, and a second replica has no use",
    "deployment-strategy": "as above: the old console goes before the new one comes",
}
_SECURED: Final = (
    *("tls.mode=enforcing", "tls.clientAuth=require", "tls.secret=namesrv-tls"),
    *("access.secret=namesrv-access", "takeover=refuse"),
)
_LOGS: Final = ("heartbeatLogs.existingClaim=namesrv-heartbeats",)
_CONSOLE: Final = (
    *("console.enabled=true", "console.usersSecret=namesrv-users"),
    "console.publicUrl=https://console.example",
)
# Checked installations, each with its values that differ from the defaults.
VARIANTS: Final[Mapping[str, Sequence[str]]] = {
    "plain": (),
    "secured": _SECURED,
    "console": (*_CONSOLE, "console.actions=true"),
    "ipv6": ("ipv6Only=true", *_CONSOLE),
    "outside": ("views.configMap=namesrv-views", "outside.type=NodePort", "outside.nodePort=30876"),
    "report": (*_LOGS, "report.enabled=true", "report.outputClaim=namesrv-report"),
    "all": (
        *("image.repository=registry.example/namesrv", f"image.digest=sha256:{'0' * 64}"),
        *_SECURED,
        "tls.crl.secret=namesrv-crl",
        *_LOGS,
        *_CONSOLE,
        "console.tlsSecret=namesrv-console-tls",
        *("report.enabled=true", "report.outputClaim=namesrv-report"),
        *("serviceMonitor.enabled=true", "alerts.enabled=true", "antiAffinity=required", "replicas=5"),
        *("views.configMap=namesrv-views", "outside.type=LoadBalancer"),
        *("settings.broker_expiry_seconds=60", "settings.notify_min_broker_id_changed=true"),
    ),
}


class ChartError(Exception):
    """The chart has an error, or could not be checked."""


def tool(name: str, directory: Path) -> Path:
    """The path of the tool, built into a directory; Go caches its builds."""
    module, package = TOOLS[name]
    built = directory / name
    _run("go", "build", "-o", str(built), package, cwd=_CHECK / module)
    return built


def rendered(helm: Path, values: Sequence[str], *, kubernetes: str = _KUBERNETES[-1]) -> str:
    """The manifests of a release `mq` in the namespace `mq`. Raises ChartError with helm's message."""
    settings = [word for value in values for word in ("--set", value)]
    version = ("--kube-version", kubernetes.removeprefix("v"))
    return _run(str(helm), "template", "mq", str(_CHART), "--namespace", "mq", *version, *settings)


def write_schemas(directory: Path, kubernetes: str) -> None:
    """Write a JSON schema that refuses unknown fields for each kind, under the name that kubeconform expects."""
    api = json.loads((_module("k8s.io/kubernetes", kubernetes) / "api/openapi-spec/swagger.json").read_bytes())
    definitions = api["definitions"]
    for definition in definitions.values():
        if "properties" in definition:
            definition.setdefault("additionalProperties", False)
    # A string or a number, which OpenAPI 2 cannot express.
    definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] = {"type": ["string", "integer"]}
    definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"] = {"type": ["string", "number"]}
    (directory / "definitions.json").write_text(json.dumps({"definitions": definitions}))
    for name, definition in definitions.items():
        for kind in definition.get("x-kubernetes-group-version-kind", []):
            group = kind["group"].split(".")[0]
            file = "-".join(part for part in (kind["kind"].lower(), group, kind["version"]) if part)
            reference = {"$ref": f"definitions.json#/definitions/{name}"}
            (directory / f"{file}.json").write_text(json.dumps(reference))
    crds = _module("github.com/prometheus-operator/prometheus-operator", _OPERATOR) / "example/prometheus-operator-crd"
    for plural in ("servicemonitors", "prometheusrules"):
        crd = yaml.safe_load((crds / f"monitoring.coreos.com_{plural}.yaml").read_bytes())["spec"]
        for version in crd["versions"]:
            schema = _strict(version["schema"]["openAPIV3Schema"])
            (directory / f"{crd['names']['singular']}-monitoring-{version['name']}.json").write_text(json.dumps(schema))


def _strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: _strict(value) for key, value in schema.items()}
    if isinstance(strict.get("properties"), dict) and "type" in strict and strict["properties"].keys() - {"metadata"}:
        strict.setdefault("additionalProperties", False)
    return strict


def plain_manifests(helm: Path) -> dict[Path, str]:
    """The files of deploy/kubernetes/: the chart's output, for installations without Helm."""
    head = "# For installations without Helm; `make chart-check ARGS=--write` renders the chart {}.\n"
    texts = {"plain": "with its defaults", "secured": "with TLS, client certificates and an access file"}
    return {
        _PLAIN / f"namesrv-{name}.yaml": head.format(text) + rendered(helm, VARIANTS[name])
        for name, text in texts.items()
    }


def check(work: Path, *, write: bool) -> None:
    """Check everything. Raises ChartError on the first error."""
    helm, kubeconform, score = (tool(name, work) for name in TOOLS)
    _run(str(helm), "lint", "--strict", str(_CHART))
    _say("helm lint has nothing against the chart")
    for kubernetes in _KUBERNETES:
        schemas = work / kubernetes
        schemas.mkdir()
        write_schemas(schemas, kubernetes)
        location = f"{schemas}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
        for values in VARIANTS.values():
            manifests = rendered(helm, values, kubernetes=kubernetes)
            _run(str(kubeconform), "-strict", "-summary", "-schema-location", location, stdin=manifests)
        _say(f"kubeconform has nothing against {len(VARIANTS)} variants with the schemas of {kubernetes}")
    left_out = [word for name in _POLICIES_LEFT_OUT for word in ("--ignore-test", name)]
    for values in VARIANTS.values():
        _run(str(score), "score", "--exit-one-on-warning", *left_out, "-", stdin=rendered(helm, values))
    _say("kube-score has nothing against them")
    for path, text in plain_manifests(helm).items():
        if write:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            raise ChartError(f"{path.relative_to(_ROOT)} is not what the chart renders: make chart-check ARGS=--write")
    _say("deploy/kubernetes is what the chart renders")


def _module(path: str, version: str) -> Path:
    return Path(json.loads(_run("go", "mod", "download", "-json", f"{path}@{version}", cwd=Path("/")))["Dir"])


def _run(*words: str, cwd: Path | None = None, stdin: str | None = None) -> str:
    environ = {**os.environ, "GOFLAGS": "-mod=readonly"}
    try:
        done = subprocess.run(  # noqa: S603 - tools that we name
            words, cwd=cwd, env=environ, input=stdin, capture_output=True, text=True, timeout=1200, check=False
        )
    except FileNotFoundError as error:
        raise ChartError(f"{words[0]} is missing, so the chart cannot be checked") from error
    if done.returncode != 0:
        raise ChartError(f"{Path(words[0]).name} {words[1]}: {done.stdout}{done.stderr}".rstrip())
    return done.stdout


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def main() -> int:
    """Check the chart; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.chart_check", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write deploy/kubernetes anew")
    with tempfile.TemporaryDirectory(prefix="namesrv-chart-") as work:
        try:
            check(Path(work), write=parser.parse_args().write)
        except ChartError as error:
            sys.stderr.write(f"chart-check: {error}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
