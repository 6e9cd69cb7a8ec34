"""Checks everything that a release needs, without publishing, and prints the remaining manual steps."""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from tools.dist import ROOT, read_project

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
_COMMANDS: Final = (
    ("make", "lint"),
    ("make", "dist"),
    (*_PYTHON, "twine", "check", "--strict", "dist/*.whl", "dist/*.tar.gz"),
    (*_PYTHON, "pytest", "-q", "tests/test_packaging.py", "tests/dist"),
)
_CHART: Final = ("make", "chart-check")
_NEXT: Final = """\
all is well; what is left, by hand:
  git tag --sign v{version} --message 'namesrv {version}'
  gpg --armor --detach-sign dist/SHA256SUMS
  git push origin v{version}
  {python} -m twine upload dist/*.whl"""


def main() -> int:
    """Run all checks, also after a failure; returns the exit code."""
    version: str = read_project()["project"]["version"]
    commands = [*_COMMANDS, *([_CHART] if shutil.which("go") else [])]
    problems = [
        *_tree_problems(version),
        *version_problems(ROOT, version),
        *(f"{' '.join(words)}: failed" for words in commands if not _succeeds(*words)),
        *_clone_problems(),
    ]
    if not shutil.which("go"):
        _say("not checked, as Go is not installed: make chart-check")
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


def _tree_problems(version: str) -> Iterator[str]:
    for changed in _git("status", "--porcelain").splitlines():
        yield f"not committed: {changed}"
    if _git("tag", "--list", f"v{version}"):
        yield f"released before: v{version} is a tag"


def _clone_problems() -> list[str]:
    """Differences to a build of a clone of the last commit: the wheels must be reproducible from the tag."""
    with tempfile.TemporaryDirectory() as directory:
        _git("clone", "--quiet", str(ROOT), directory)
        command = (sys.executable, "-m", "tools.dist", "dist")
        subprocess.run(command, cwd=directory, check=True, stdout=subprocess.DEVNULL)  # noqa: S603  # our own
        built = (path for path in Path(directory, "dist").iterdir())
        return [
            f"{path.name}: differs in a fresh clone" for path in built if _digest(path) != _digest(_DIST / path.name)
        ]


def _digest(file: Path) -> str | None:
    return sha256(file.read_bytes()).hexdigest() if file.is_file() else None


def _succeeds(*words: str) -> bool:
    _say(" ".join(words))
    # Patterns are expanded when the command runs.
    found = (sorted(map(str, ROOT.glob(word))) if "*" in word else [word] for word in words)
    command = [word for part in found for word in part]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0  # noqa: S603  # as above


def _git(*words: str) -> str:
    command = ("git", *words)
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout  # noqa: S603  # fixed


def _say(text: str) -> None:
    print(f"release-check: {text}", flush=True)  # noqa: T201 - what it is called for


if __name__ == "__main__":
    sys.exit(main())
