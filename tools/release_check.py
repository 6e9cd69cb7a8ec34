"""Checks everything that a release needs, without publishing, and prints the remaining manual steps."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tools import scorecard
from tools.dist import ROOT, read_project
from tools.provenance import SUMS

_DIST: Final = ROOT / "dist"
# Files other than pyproject.toml that contain the version.
_PLACES: Final[Mapping[str, str]] = {
    "CHANGELOG.md": r"^## \[{version}\] - \d{{4}}-\d\d-\d\d$",
    "deploy/helm/namesrv/Chart.yaml": r"^version: {version}\nappVersion: {version}$",
    "docker/README.md": r"/opt/namesrv-{version}$",
    "deploy/debian/README.md": r"\bnamesrv_{version}_",
    "docker/*.Dockerfile": "^ARG VERSION={version}$",
}
_PYTHON: Final = (sys.executable, "-m")
# The modules that build everything into a directory `dist`.
_DEBIAN: Final = ("tools.debian_package", "--out", "dist")
_BUILD: Final = (("tools.dist", "dist"), ("tools.sbom", "dist"), _DEBIAN, ("tools.provenance", "dist"))
# The second build runs with another umask, time zone, locale and hash seed than any usual first one.
_OTHER: Final[Mapping[str, str]] = {"TZ": "Asia/Kathmandu", "LC_ALL": "C", "PYTHONHASHSEED": "20261126"}
_OTHER_UMASK: Final = 0o077
_COMMANDS: Final = (
    (*_PYTHON, "twine", "check", "--strict", "dist/*.whl", "dist/*.tar.gz"),
    (*_PYTHON, "pytest", "-q", "tests/test_packaging.py", "tests/dist"),
)
_CHART: Final = ("make", "chart-check")
# Tools that pip does not install, with the checks that need them.
_CHECKS_OF_TOOL: Final[Mapping[str, str]] = {
    "go": "make chart-check and Scorecard",
    "dpkg-deb": "the Debian packages",
}
_SIGN: Final = ("gpg", "--batch", "--yes", "--armor", "--detach-sign", "--local-user")
_NEXT: Final = """\
all is well; what is left, by hand:
  git tag --sign v{version} --message 'namesrv {version}'
  git push origin v{version}
  {python} -m twine upload dist/*.whl"""


def main() -> int:
    """Run all checks, also after a failure; returns the exit code."""
    version: str = read_project()["project"]["version"]
    missing = {tool for tool in _CHECKS_OF_TOOL if not shutil.which(tool)}
    build = [(*_PYTHON, *words) for words in _BUILD if words != _DEBIAN or "dpkg-deb" not in missing]
    problems = [*_tree_problems(version), *version_problems(ROOT, version), *tool_problems(missing)]
    shutil.rmtree(_DIST, ignore_errors=True)
    commands = [
        ("make", "lint"),
        ("sh", "locks/add.sh", "dist"),
        *build,
        *_COMMANDS,
        *([] if "go" in missing else [_CHART]),
    ]
    problems += [f"{' '.join(words)}: failed" for words in commands if not _succeeds(*words)]
    with tempfile.TemporaryDirectory() as clone:
        problems += rebuild_problems(ROOT, Path(clone), build)
    if "go" not in missing:
        problems += scorecard.score_problems(scorecard.results(ROOT))
    problems += [] if problems else signing_problems(_DIST, os.environ.get("SIGNING_KEY", ""))
    for problem in problems:
        _say(problem)
    if not problems:
        _say(_NEXT.format(version=version, python=Path(sys.executable).relative_to(ROOT)))
    return bool(problems)


def version_problems(root: Path, version: str) -> list[str]:
    """The files below a directory that contain another version."""
    return [
        f"{file.relative_to(root)}: not of version {version}"
        for files, pattern in _PLACES.items()
        for file in sorted(root.glob(files))
        if not re.search(pattern.format(version=re.escape(version)), file.read_text(), re.MULTILINE)
    ]


def tool_problems(missing: Container[str]) -> list[str]:
    """The checks that cannot run without the missing tools."""
    return [
        f"not checked, as {tool} is not installed: {checks}"
        for tool, checks in _CHECKS_OF_TOOL.items()
        if tool in missing
    ]


def rebuild_problems(root: Path, clone: Path, commands: Sequence[Sequence[str]]) -> list[str]:
    """Clone the last commit, build it there, and compare all files with `dist` of the first tree."""
    command = ("git", "clone", "--quiet", str(root), str(clone))
    subprocess.run(command, check=True, umask=_OTHER_UMASK)  # noqa: S603  # fixed
    # Our modules come from the clone and not from the tree that is installed.
    paths = [clone, *(clone / folder for folder in read_project()["tool"]["hatch"]["build"]["dev-mode-dirs"])]
    environ = {**os.environ, **_OTHER, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    for words in commands:
        done = subprocess.run(words, cwd=clone, env=environ, umask=_OTHER_UMASK, check=False)  # noqa: S603  # our own
        if done.returncode:
            return [f"{' '.join(words)}: failed in a fresh clone"]
    first, second = root / "dist", clone / "dist"
    names = sorted({path.name for directory in (first, second) if directory.is_dir() for path in directory.iterdir()})
    return [f"{name}: differs in a second build" for name in names if _content(first / name) != _content(second / name)]


def signing_problems(directory: Path, key: str) -> list[str]:
    """Sign the digests of all files in a directory with a key of gpg; without one only say so."""
    if not key:
        _say(f"not signed, as SIGNING_KEY is empty: {directory.name}/{SUMS}")
        return []
    signed = _succeeds(*_SIGN, key, str(directory / SUMS))
    return [] if signed else [f"{SUMS}: not signed with the key {key}"]


def _tree_problems(version: str) -> Iterator[str]:
    for changed in _git("status", "--porcelain").splitlines():
        yield f"not committed: {changed}"
    if _git("tag", "--list", f"v{version}"):
        yield f"released before: v{version} is a tag"


def _content(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() else None


def _succeeds(*words: str) -> bool:
    _say(" ".join(words))
    # Patterns are expanded when the command runs.
    found = (sorted(map(str, ROOT.glob(word))) if "*" in word else [word] for word in words)
    command = [word for part in found for word in part]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0  # noqa: S603  # our own


def _git(*words: str) -> str:
    command = ("git", *words)
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout  # noqa: S603  # fixed


def _say(text: str) -> None:
    print(f"release-check: {text}", flush=True)  # noqa: T201 - what it is called for


if __name__ == "__main__":
    sys.exit(main())
