"""Writes a CycloneDX bill of materials beside each wheel.

Versions and dependencies come from the lock, licences from the installed packages. cyclonedx-py 7.5 does not support
this: its `requirements` lists neither dependencies nor licences, and its `environment` would need each of the eight
wheels installed separately.
"""

import argparse
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from tools.dist import ROOT, needed_packages, needed_wheels, read_project, source_date_epoch, wheels
from tools.locked import Locked, package_of, read_lock

_licences: Final = LicenseFactory()


class SbomError(Exception):
    """The result would not be a valid bill of materials."""


def main(argv: Sequence[str] | None = None) -> None:
    """Write all bills."""
    options = argparse.ArgumentParser(prog="python -m tools.sbom", description=__doc__)
    options.add_argument("directory", type=Path, help="where the wheels are")
    directory: Path = options.parse_args(argv).directory
    configs, locked = wheels(read_project()), read_lock(ROOT / "locks/dev.txt")
    built = {path.name.split("-")[0].replace("_", "-"): path.read_bytes() for path in directory.glob("*.whl")}
    made_at = datetime.fromtimestamp(source_date_epoch(), UTC)
    for name in built:
        text = bill_of(name, built, configs, locked, made_at)
        wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
        if wrong is not None:
            raise SbomError(f"{name}: {wrong}")
        (directory / f"{name}-{configs[name]['project']['version']}.cdx.json").write_text(text)


def bill_of(
    name: str,
    built: Mapping[str, bytes],
    configs: Mapping[str, Mapping[str, Any]],
    locked: Mapping[str, Locked],
    made_at: datetime,
) -> str:
    """The bill of one wheel as JSON: our wheels that it requires, and the packages that all of these require."""
    parts = needed_wheels(name, configs)
    packages = needed_packages(parts, configs, locked)
    ours = {part: _our_component(configs[part]["project"], built[part]) for part in parts}
    components = {**ours, **{package: _component(package, locked[package]) for package in packages}}
    bill = Bom(
        components=[component for part, component in components.items() if part != name],
        # Equal for equal wheels.
        serial_number=uuid.uuid5(uuid.NAMESPACE_OID, sha256(built[name]).hexdigest()),
        metadata=BomMetaData(component=components[name], timestamp=made_at),
    )
    for part in parts:
        needed = {package_of(requirement) for requirement in configs[part]["project"]["dependencies"]}
        bill.register_dependency(components[part], [components[one] for one in needed])
    for package in packages:
        needed = {one for one in packages if package in locked[one].via}
        bill.register_dependency(components[package], [components[one] for one in needed])
    # The annotation is for mypy, where the library of locks/dist.txt is not installed.
    text: str = JsonV1Dot6(bill).output_as_string(indent=1)
    return text


def _our_component(project: Mapping[str, Any], wheel: bytes) -> Component:
    return Component(
        name=project["name"],
        version=project["version"],
        description=project["description"],
        type=ComponentType.APPLICATION if project["scripts"] else ComponentType.LIBRARY,
        purl=PackageURL("pypi", name=project["name"], version=project["version"]),
        bom_ref=project["name"],
        licenses=[_licences.make_from_string(project["license"])],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256(wheel).hexdigest())],
    )


def _component(name: str, locked: Locked) -> Component:
    return Component(
        name=name,
        version=locked.version,
        purl=PackageURL("pypi", name=name, version=locked.version),
        bom_ref=name,
        licenses=[_licences.make_from_string(licence) for licence in _licence_of(name)],
    )


def _licence_of(package: str) -> list[str]:
    """The licences of a package; empty for a package that is not installed on this system."""
    try:
        known = metadata.metadata(package)
    except metadata.PackageNotFoundError:
        return []
    classifiers = [one.rpartition(" :: ")[2] for one in known.get_all("Classifier", []) if one.startswith("License ::")]
    named = [text for text in (known["License-Expression"], known["License"]) if text and "\n" not in text]
    return (named or classifiers)[:1]


if __name__ == "__main__":
    main()
