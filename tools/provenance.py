"""Writes the provenance of a build in SLSA's format, and the digests of all files: the last step of a build.

The provenance is an in-toto statement, version 1, with SLSA's predicate (https://slsa.dev/provenance/v1). The statement
is not signed itself: SHA256SUMS contains its digest, and the release's signature covers SHA256SUMS.
"""

import argparse
import json
import platform
import subprocess
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from tools.dist import ROOT, read_project, source_date_epoch

SUMS: Final = "SHA256SUMS"
# The format requires identifiers in the form of URLs; no server answers there.
_BUILDER: Final = "https://namesrv.invalid/builders/make-dist"
_BUILD_TYPE: Final = "https://namesrv.invalid/build-types/make-dist/v1"
# Each file pins all packages of a step by version and hash.
_LOCKS: Final = ("locks/dev.txt", "locks/dist.txt", "locks/run.txt", "locks/report.txt")


def statement(subjects: Mapping[str, str], commit: str, version: str) -> dict[str, Any]:
    """The in-toto statement for files, given by name and SHA-256, that were built from a commit of this tree."""
    locks = [{"uri": path, "digest": {"sha256": _digest(ROOT / path)}} for path in _LOCKS]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(subjects.items())],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": _BUILD_TYPE,
                "externalParameters": {"version": version, "commit": commit},
                "internalParameters": {"SOURCE_DATE_EPOCH": source_date_epoch()},
                "resolvedDependencies": [{"uri": "git+.", "digest": {"gitCommit": commit}}, *locks],
            },
            "runDetails": {
                "builder": {
                    "id": _BUILDER,
                    "version": {"python": platform.python_version(), "hatchling": metadata.version("hatchling")},
                }
            },
        },
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Write the provenance and SHA256SUMS of the built files into their directory."""
    options = argparse.ArgumentParser(prog="python -m tools.provenance", description=__doc__)
    options.add_argument("directory", type=Path, help="where the built files are")
    directory: Path = options.parse_args(argv).directory
    version: str = read_project()["project"]["version"]
    provenance = directory / f"namesrv-{version}.provenance.json"
    subjects = {path.name: _digest(path) for path in directory.iterdir() if path.name not in {provenance.name, SUMS}}
    command = ("git", "rev-parse", "HEAD")
    commit = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603
    made = statement(subjects, commit, version)
    provenance.write_text(json.dumps(made, indent=1) + "\n")
    digests = sorted({**subjects, provenance.name: _digest(provenance)}.items())
    # The format of sha256sum.
    (directory / SUMS).write_text("".join(f"{digest}  {name}\n" for name, digest in digests))


def _digest(file: Path) -> str:
    return sha256(file.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
