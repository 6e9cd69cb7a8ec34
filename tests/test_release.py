"""The release check: two builds of a commit, the signature, the provenance, and Scorecard's results."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tools import dist, provenance, release_check, scorecard

# Each file has what the build could depend on beside the commit.
BUILD = """
import os, pathlib, time
found = {
    "constant": "same",
    "time": time.time_ns(),
    "directory": os.getcwd(),
    "umask": oct(os.stat("build.py").st_mode),
    "zone": time.tzname,
    "locale": os.environ.get("LC_ALL"),
    "hash_seed": hash("a"),
    "uncommitted": pathlib.Path("uncommitted").exists(),
}
pathlib.Path("dist").mkdir()
for name, value in found.items():
    pathlib.Path("dist", name).write_text(str(value))
"""


def git(directory: Path, *words: str) -> None:
    """Run git as a committer of its own."""
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=directory, check=True)


def tree_of(tmp_path: Path, build: str) -> Path:
    """A repository whose only committed file is this build."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "build.py").write_text(build)
    git(tree, "init", "--quiet")
    git(tree, "add", "build.py")
    git(tree, "commit", "--quiet", "--message", "all")
    return tree


def test_build_that_depends_on_more_than_the_commit_is_a_problem(tmp_path: Path) -> None:
    """The second build has another time, directory, umask, zone, locale and hash seed, and only what is committed."""
    tree, build = tree_of(tmp_path, BUILD), [sys.executable, "build.py"]
    (tree / "uncommitted").touch()
    subprocess.run(build, cwd=tree, check=True)

    different = ("directory", "hash_seed", "locale", "time", "umask", "uncommitted", "zone")
    assert release_check.rebuild_problems(tree, tmp_path / "clone", [build]) == [
        f"{name}: differs in a second build" for name in different
    ]


def test_missing_and_additional_files_are_problems(tmp_path: Path) -> None:
    """A file of only one of the builds is named, and so is a command that fails."""
    tree = tree_of(tmp_path, "import os; os.mkdir('dist'); open('dist/second', 'w')")
    (tree / "dist").mkdir()
    (tree / "dist/first").touch()
    build, failing = (sys.executable, "build.py"), ("false",)

    assert release_check.rebuild_problems(tree, tmp_path / "clone", [build]) == [
        "first: differs in a second build",
        "second: differs in a second build",
    ]
    assert release_check.rebuild_problems(tree, tmp_path / "other", [failing]) == ["false: failed in a fresh clone"]


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A key of gpg in a directory of its own, whose path is short enough for the socket of gpg's agent."""
    if shutil.which("gpg") is None:
        pytest.skip("gpg is not installed")
    with tempfile.TemporaryDirectory() as home:
        monkeypatch.setenv("GNUPGHOME", home)
        made = ("--quick-generate-key", "release@namesrv.invalid", "ed25519", "sign", "never")
        subprocess.run(["gpg", "--batch", "--quiet", "--passphrase", "", *made], check=True)
        yield "release@namesrv.invalid"
        subprocess.run(["gpgconf", "--kill", "all"], check=True)


def test_signature_covers_the_digests(tmp_path: Path, key: str) -> None:
    """The signature of SHA256SUMS is valid until that file changes."""
    sums = tmp_path / "SHA256SUMS"
    sums.write_text("0  namesrv.whl\n")

    assert release_check.signing_problems(tmp_path, key) == []
    verify = ["gpg", "--quiet", "--verify", f"{sums}.asc", str(sums)]
    assert subprocess.run(verify, check=False).returncode == 0
    sums.write_text("1  namesrv.whl\n")
    assert subprocess.run(verify, check=False).returncode == 1


@pytest.mark.usefixtures("key")
def test_unknown_key_is_a_problem_and_no_key_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a key the files stay unsigned, and the output contains a sentence about it."""
    (tmp_path / "SHA256SUMS").touch()

    assert release_check.signing_problems(tmp_path, "else") == ["SHA256SUMS: not signed with the key else"]
    capsys.readouterr()
    assert release_check.signing_problems(tmp_path, "") == []
    assert (
        capsys.readouterr().out == f"release-check: not signed, as SIGNING_KEY is empty: {tmp_path.name}/SHA256SUMS\n"
    )
    assert [path.name for path in tmp_path.glob("*.asc")] == []


@pytest.mark.parametrize(
    ("missing", "problems"),
    [
        (set(), []),
        ({"go"}, ["not checked, as go is not installed: make chart-check and Scorecard"]),
        (
            {"go", "dpkg-deb"},
            [
                "not checked, as go is not installed: make chart-check and Scorecard",
                "not checked, as dpkg-deb is not installed: the Debian packages",
            ],
        ),
    ],
)
def test_missing_tool_is_a_problem(missing: set[str], problems: list[str]) -> None:
    """A release is not ready until each check has run."""
    assert release_check.tool_problems(missing) == problems


def test_provenance_names_files_commit_and_locks(tmp_path: Path) -> None:
    """The statement has the fields that SLSA's format requires, and sha256sum accepts the digests."""
    (tmp_path / "namesrv-1.whl").write_text("a wheel")
    provenance.main([str(tmp_path)])

    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=dist.ROOT, capture_output=True, text=True, check=True)
    (path,) = tmp_path.glob("*.provenance.json")
    made = json.loads(path.read_text())
    # printf 'a wheel' | sha256sum
    digest = "69f51477f05c46bf"
    assert made["_type"] == "https://in-toto.io/Statement/v1"
    assert made["predicateType"] == "https://slsa.dev/provenance/v1"
    assert [(one["name"], one["digest"]["sha256"][:16]) for one in made["subject"]] == [("namesrv-1.whl", digest)]
    definition = made["predicate"]["buildDefinition"]
    source, *locks = definition["resolvedDependencies"]
    assert source["digest"] == {"gitCommit": commit.stdout.strip()}
    assert [one["uri"] for one in locks] == ["locks/dev.txt", "locks/dist.txt", "locks/run.txt", "locks/report.txt"]
    assert definition["externalParameters"]["commit"] == commit.stdout.strip()
    assert made["predicate"]["runDetails"]["builder"]["id"].startswith("https://")
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=tmp_path, check=True)
    # A second run describes the same files, and neither itself nor the digests.
    before = path.read_bytes()
    provenance.main([str(tmp_path)])
    assert path.read_bytes() == before


def checks(**scores: int) -> list[dict[str, Any]]:
    """Results of Scorecard with the expected scores, but for these."""
    expected = {**scorecard.SCORES, **scores}
    return [
        {"name": name, "score": score, "reason": "a reason", "details": ["Info: fine", "Warn: a line"]}
        for name, score in expected.items()
    ]


def test_unexpected_score_is_a_problem() -> None:
    """The problem has Scorecard's reason and warnings; a check without a result is a problem, too."""
    assert scorecard.score_problems(checks()) == []
    assert scorecard.score_problems(checks(License=0)) == [
        "scorecard: License: 0 of 10, a reason Warn: a line; expected 9 of 10"
    ]
    assert scorecard.score_problems(checks()[:-1]) == ["scorecard: Security-Policy: no result; expected 4 of 10"]
