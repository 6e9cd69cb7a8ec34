"""Writes the bill of materials of an image in CycloneDX format; each image build runs `python sbom.py FILE`.

The components are the installed Python packages, Python itself, and the Debian packages of the base image. cyclonedx-py
7.5 lists Python packages only, and would add 30 packages to the image.
"""

import json
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from urllib.parse import quote


def components() -> Iterator[dict[str, object]]:
    """One component for each installed package, by name."""
    for found in sorted(metadata.distributions(), key=lambda one: one.name.lower()):
        licences = found.metadata.get_all("License-Expression") or []
        yield _component(found.name, found.version, f"pypi/{found.name.lower().replace('_', '-')}") | (
            {"licenses": [{"expression": licence} for licence in licences]} if licences else {}
        )
    yield _component("python", platform.python_version(), "generic/python")
    fields = "${Package}\t${Version}\t${Architecture}\n"
    try:
        command = ("dpkg-query", "--show", f"--showformat={fields}")
        listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603  # a fixed command
    except FileNotFoundError:  # The base image is not like Debian.
        return
    for name, version, architecture in (line.split("\t") for line in listed.splitlines()):
        yield _component(name, version, f"deb/debian/{name}", f"?arch={architecture}")


def _component(name: str, version: str, package: str, qualifiers: str = "") -> dict[str, object]:
    url = f"pkg:{package}@{quote(version)}{qualifiers}"
    return {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url}


def main(argv: Sequence[str] | None = None) -> None:
    """Write the bill of materials to the file."""
    (path,) = sys.argv[1:] if argv is None else argv
    bill = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": list(components())}
    Path(path).write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
