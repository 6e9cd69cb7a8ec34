"""Builds the distribution: the sources, and a wheel for each part that can be installed separately.

pyproject.toml lists the wheels. The same sources and SOURCE_DATE_EPOCH make the same bytes.
"""

import argparse
import os
import subprocess
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from tools.locked import Locked, package_of, read_lock

ROOT: Final = Path(__file__).resolve().parents[1]
# Members of the project that every wheel shares.
_SHARED: Final = ("version", "requires-python", "license", "license-files", "keywords", "classifiers")


def read_project() -> dict[str, Any]:
    """pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def wheels(pyproject: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The wheels by name, each as the pyproject.toml that would build it alone."""
    parts = pyproject["tool"]["namesrv"]["wheels"]
    shipped = [package for of in parts.values() for package in of["packages"]]
    return {name: _wheel(pyproject["project"], name, of, shipped) for name, of in parts.items()}


def build_wheels(to: Path, only: Sequence[str] = ()) -> Iterator[Path]:
    """Build every wheel into a directory, or only some wheels and those of ours that they require."""
    configs = wheels(read_project())
    for name in dict.fromkeys(part for one in only or configs for part in needed_wheels(one, configs)):
        yield from map(Path, WheelBuilder(str(ROOT), config=configs[name]).build(directory=str(to)))


def build_sources(to: Path) -> Path:
    """Build the source distribution of the whole tree into a directory."""
    (built,) = SdistBuilder(str(ROOT)).build(directory=str(to))
    return Path(built)


def write_requirements(built: Iterable[Path], to: Path) -> Iterator[Path]:
    """Write a requirements file for each wheel, with all its packages by version and hash."""
    hashes = {path.name.split("-")[0].replace("_", "-"): sha256(path.read_bytes()).hexdigest() for path in built}
    configs = wheels(read_project())
    locked = read_lock(ROOT / "locks/dev.txt")
    for name in hashes:
        parts = needed_wheels(name, configs)
        ours = [f"{part}=={configs[part]['project']['version']} --hash=sha256:{hashes[part]}" for part in parts]
        theirs = [locked[package].text for package in needed_packages(parts, configs, locked)]
        path = to / f"{name}.txt"
        path.write_text("\n".join((f"# pip install -r {path.name}", "--find-links .", *ours, *theirs, "")))
        yield path


def needed_wheels(name: str, configs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The wheel, and those of ours that it requires directly or indirectly."""
    needed = (package_of(requirement) for requirement in configs[name]["project"]["dependencies"])
    ours = [part for one in needed if one in configs for part in needed_wheels(one, configs)]
    return list(dict.fromkeys([*ours, name]))


def needed_packages(
    parts: Sequence[str], configs: Mapping[str, Mapping[str, Any]], locked: Mapping[str, Locked]
) -> list[str]:
    """The locked packages that our wheels require directly or indirectly."""
    listed = (requirement for part in parts for requirement in configs[part]["project"]["dependencies"])
    found = {package_of(requirement) for requirement in listed} - configs.keys()
    while further := {name for name, package in locked.items() if package.via & found} - found:
        found |= further
    return sorted(found)


def main(argv: Sequence[str] | None = None) -> None:
    """Build everything, and print the paths."""
    options = argparse.ArgumentParser(prog="python -m tools.dist", description=__doc__)
    options.add_argument("directory", type=Path, help="where to; what stands there under other names is left alone")
    options.add_argument("wheel", nargs="*", help="build only these wheels, and those of ours that they need")
    given = options.parse_args(argv)
    to: Path = given.directory.resolve()
    # hatchling reads the variable.
    os.environ["SOURCE_DATE_EPOCH"] = str(source_date_epoch())
    built_wheels = list(build_wheels(to, given.wheel))
    others = [] if given.wheel else [build_sources(to), *write_requirements(built_wheels, to)]
    for built in (*built_wheels, *others):
        print(f"{built.stat().st_size:>9,} {built.name}")  # noqa: T201 - what it is called for


def source_date_epoch() -> int:
    """SOURCE_DATE_EPOCH, else the time of the commit, else hatchling's default."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    command = ("git", "log", "-1", "--format=%ct")
    try:
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S603  # fixed
    except (OSError, subprocess.CalledProcessError):
        return 1_580_601_600
    return int(done.stdout)


def _wheel(project: Mapping[str, Any], name: str, of: Mapping[str, Any], shipped: Sequence[str]) -> dict[str, Any]:
    extras: Mapping[str, list[str]] = project["optional-dependencies"]

    ours = [f"{wheel}=={project['version']}" for wheel in of.get("needs", ())]
    base = project["dependencies"] if of.get("base") else []
    required = [requirement for extra in of.get("extras", ()) for requirement in extras[extra]]
    # An extra may contain another extra of the project, which the wheel requires anyway.
    optional = {
        extra: [requirement for requirement in extras[extra] if not requirement.startswith("namesrv[")]
        for extra in of.get("optional", ())
    }
    files = {
        "only-include": of["packages"],
        "sources": sorted({package.split("/")[0] for package in of["packages"]}),
        "exclude": [path for path in shipped if any(path.startswith(f"{own}/") for own in of["packages"])],
    }
    return {
        "project": {
            **{key: project[key] for key in _SHARED},
            "name": name,
            "description": of["description"],
            "readme": of["readme"],
            "dependencies": [*ours, *base, *required],
            "optional-dependencies": optional,
            "scripts": {script: project["scripts"][script] for script in of.get("scripts", ())},
            "entry-points": {group: project["entry-points"][group] for group in of.get("entry-points", ())},
        },
        "tool": {"hatch": {"build": {"targets": {"wheel": files}}}},
    }


if __name__ == "__main__":
    main()
