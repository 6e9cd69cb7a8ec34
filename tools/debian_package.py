"""Builds the Debian packages: server, agent, namesrvctl, console and report, in one virtual environment.

    python -m tools.debian_package --out dist

The packages are for Debian 12 and its Python 3.11. dpkg-deb packs them: with nothing to compile debhelper would not
help, and Debian does not have nfpm. The installed packages are in locks/run.txt and locks/report.txt, by version and
hash.
"""

import argparse
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Final, get_origin

from namesrv import version
from namesrv.settings.catalog import SETTINGS, Setting
from tools import dist, man_pages

_DEBIAN: Final = dist.ROOT / "deploy/debian"
_UNITS: Final = dist.ROOT / "docker/systemd"
_HOME: Final = "usr/lib/namesrv"
_PYTHON: Final = (3, 11)
# The newest glibc that a wheel may require: Debian 12's.
_GLIBC: Final = 36
_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_SITE: Final = f"{_HOME}/lib/python3.11/site-packages"
# Debian starts a server during its installation, before an operator can configure access.
_CHOSEN: Final[Mapping[str, object]] = {"listen_host": "127.0.0.1"}
# Set by the unit, which wins over this file.
_OF_THE_UNIT: Final = frozenset({"data_dir"})


class PackageError(Exception):
    """The packages cannot be built on this machine."""


@dataclass(frozen=True)
class Package:
    """A package; its control file and scripts are in a folder of its name."""

    name: str
    lock: str
    # Names of wheels in pyproject.toml, which also lists their commands.
    wheels: Sequence[str]
    units: Sequence[str]

    def commands(self) -> dict[str, str]:
        """Command -> `module:function`."""
        configs = dist.wheels(dist.read_project())
        return {name: at for wheel in self.wheels for name, at in configs[wheel]["project"]["scripts"].items()}


PACKAGES: Final = (
    Package(
        "namesrv",
        lock="run",
        wheels=("namesrv", "namesrv-agent", "namesrv-ctl", "namesrv-console"),
        units=("namesrv.service", "namesrv-broker-agent.service", "namesrv-console.service"),
    ),
    Package(
        "namesrv-staleness",
        lock="report",
        wheels=("namesrv-report",),
        units=("namesrv-staleness.service", "namesrv-staleness.timer"),
    ),
)


def build(out: Path) -> Iterator[Path]:
    """Build the packages into a directory; yields their paths."""
    if sys.version_info[:2] != _PYTHON:
        have = ".".join(map(str, sys.version_info[:2]))
        raise PackageError(f"the packages are for Debian 12, and have to be made with Python 3.11, not {have}")
    architecture = _run("dpkg", "--print-architecture").strip()
    if architecture not in _MACHINES:
        raise PackageError(f"no wheels for the architecture {architecture}")
    # Equal sources make equal packages.
    os.environ["SOURCE_DATE_EPOCH"] = str(dist.source_date_epoch())
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        main_package, report = (Path(scratch) / package.name for package in PACKAGES)
        for package, tree in zip(PACKAGES, (main_package, report), strict=True):
            install(package, tree / _SITE, Path(scratch) / f"{package.name}-wheels", _MACHINES[architecture])
        _fill_environment(main_package)
        # The report is installed into the server's environment, which has some of its packages already.
        remove_shared(report / _SITE, main_package / _SITE)
        _write(report / "etc/namesrv/staleness.env", (_UNITS / "staleness.env").read_text())
        for package, tree in zip(PACKAGES, (main_package, report), strict=True):
            _fill(package, tree)
            _control(package, tree, architecture)
            _normalize(tree)
            file = out / f"{package.name}_{debian_version()}_{architecture}.deb"
            _run("dpkg-deb", "--root-owner-group", "--build", str(tree), str(file))
            yield file


def debian_version() -> str:
    """The version as dpkg sorts it: a pre-release comes before its release."""
    return re.sub(r"(\.dev|a|b|rc)(?=\d)", lambda found: "~" + found[1].removeprefix("."), version())


def _fill_environment(tree: Path) -> None:
    """Write the files of the server's package: Python, the user, the settings and the documents."""
    _link(tree / _HOME / "bin/python3", "../../../bin/python3.11")
    _write(tree / _HOME / "pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11\n")
    _write(tree / "usr/lib/sysusers.d/namesrv.conf", (_UNITS / "namesrv.sysusers").read_text())
    _write(tree / "usr/lib/tmpfiles.d/namesrv.conf", (_UNITS / "namesrv.tmpfiles").read_text())
    _write(tree / "etc/namesrv/namesrv.toml", settings_file())
    _write(tree / "etc/namesrv/console.env", (_UNITS / "console.env").read_text())
    documents = tree / "usr/share/doc/namesrv"
    _write_gz(documents / "CHANGELOG.md.gz", (dist.ROOT / "CHANGELOG.md").read_bytes())
    _write(documents / "examples/agent.toml", (_UNITS / "agent.toml").read_text())


def _fill(package: Package, tree: Path) -> None:
    for command, place in package.commands().items():
        module, _, function = place.partition(":")
        lines = (f"#!/{_HOME}/bin/python3 -I", "import sys", "", f"from {module} import {function}", "")
        _write(tree / _HOME / "bin" / command, "\n".join([*lines, f"sys.exit({function}())", ""]))
        _link(tree / "usr/bin" / command, f"../lib/namesrv/bin/{command}")
        section = man_pages.PAGES[command].section
        text = man_pages.page(command)
        _write_gz(tree / f"usr/share/man/man{section}/{command}.{section}.gz", text.encode())
    for unit in package.units:
        _write(tree / "usr/lib/systemd/system" / unit, _packaged((_UNITS / unit).read_text()))
    documents = tree / "usr/share/doc" / package.name
    _write(documents / "copyright", (_DEBIAN / "copyright").read_text())
    _write_gz(documents / "changelog.gz", _changelog(package).encode())
    overrides = (_DEBIAN / package.name / "lintian-overrides").read_text()
    _write(tree / "usr/share/lintian/overrides" / package.name, overrides)


def install(package: Package, site: Path, wheels: Path, machine: str) -> None:
    """Install our wheels and their locked dependencies into a directory that may be moved later."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(_GLIBC, 16, -1)]
    chosen = [word for name in (*platforms, f"manylinux2014_{machine}") for word in ("--platform", name)]
    chosen += ["--python-version", "3.11", "--only-binary", ":all:"]
    lock = ("--require-hashes", "--requirement", str(dist.ROOT / f"locks/{package.lock}.txt"))
    _run(*pip, "download", *chosen, "--no-deps", *lock, "--dest", str(wheels))
    ours = [f"{path.name.split('-')[0]}=={version()}" for path in dist.build_wheels(wheels, package.wheels)]
    found = ("--no-index", "--find-links", str(wheels))
    _run(*pip, "install", *chosen, *found, "--no-compile", "--target", str(site), *ours, environ={"PIP_FIND_LINKS": ""})
    # Scripts whose first line names this machine's Python.
    shutil.rmtree(site / "bin")


def _packaged(unit: str) -> str:
    """A systemd unit with the paths of the Debian package."""
    unit = unit.replace(
        "ExecStart=/opt/namesrv/bin/namesrv\n", "ExecStart=/usr/bin/namesrv --config /etc/namesrv/namesrv.toml\n"
    )
    return unit.replace("/opt/namesrv/bin/", "/usr/bin/").replace(
        "[Unit]\n", "[Unit]\nDocumentation=man:namesrv(8)\n", 1
    )


def settings_file() -> str:
    """The settings file: every setting with its text and default as a comment, or with the package's own value."""
    lines = [
        "# /etc/namesrv/namesrv.toml: settings of namesrv.service. namesrv(8) has them, too.",
        "# `systemctl reload namesrv` reads this file again; it says which settings need a restart.",
        "# A variable in /etc/namesrv/namesrv.env, such as NAMESRV_LISTEN_PORT, wins over this file.",
    ]
    topic = ""
    for setting in SETTINGS.values():
        if setting.name in _OF_THE_UNIT:
            continue
        if setting.topic != topic:
            topic = setting.topic
            lines += ["", f"## {topic}"]
        lines += ["", *textwrap.wrap(setting.consequence, 110, initial_indent="# ", subsequent_indent="# ")]
        if setting.name in _CHOSEN:
            lines += [f"# Default: {setting.default}. This package waits for you to say who may reach it."]
            lines += [f"{setting.name} = {json.dumps(_CHOSEN[setting.name])}"]
        else:
            lines.append(f"#{setting.name} = {_toml(setting)}")
    return "\n".join(lines) + "\n"


def _toml(setting: Setting) -> str:
    is_text = setting.kind not in (int, float, bool) or get_origin(setting.kind) is not None
    return json.dumps(setting.default) if is_text else setting.default


def _control(package: Package, tree: Path, architecture: str) -> None:
    kibibytes = sum(path.lstat().st_size for path in tree.rglob("*") if not path.is_dir()) // 1024
    values = {"version": debian_version(), "architecture": architecture, "maintainer": _maintainer()}
    text = (_DEBIAN / package.name / "control").read_text().format(**values, kibibytes=kibibytes)
    _write(tree / "DEBIAN/control", text)
    settings = "".join(f"/{path.relative_to(tree)}\n" for path in sorted(tree.glob("etc/*/*")))
    _write(tree / "DEBIAN/conffiles", settings)
    for script in ("postinst", "prerm", "postrm"):
        _write(tree / "DEBIAN" / script, (_DEBIAN / package.name / script).read_text())
        (tree / "DEBIAN" / script).chmod(0o755)


def _maintainer() -> str:
    """The maintainer, from the environment variables of Debian's own tools."""
    name, mail = os.environ.get("DEBFULLNAME", "namesrv developers"), os.environ.get("DEBEMAIL", "root@localhost")
    return f"{name} <{mail}>"


def _changelog(package: Package) -> str:
    made = formatdate(float(os.environ["SOURCE_DATE_EPOCH"]))
    lines = (
        f"{package.name} ({debian_version()}) stable; urgency=medium",
        "",
        "  * CHANGELOG.md.gz of namesrv says what is new.",
        "",
    )
    return "\n".join([*lines, f" -- {_maintainer()}  {made}", ""])


def _normalize(tree: Path) -> None:
    """Set file modes that do not depend on the builder; dpkg-deb sets owners and times."""
    for path in [tree, *tree.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" or path.stat().st_mode & 0o100 else 0o644)


def remove_shared(tree: Path, other: Path) -> None:
    """Remove the files that another tree contains, too, and the directories that become empty."""
    for path in sorted(tree.rglob("*"), reverse=True):
        if not path.is_dir():
            if (other / path.relative_to(tree)).is_file():
                path.unlink()
        elif not any(path.iterdir()):
            path.rmdir()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _write_gz(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, mtime=0))


def _link(path: Path, to: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(to)


def _run(*command: str, environ: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(  # noqa: S603  # our own
        command, env={**os.environ, **(environ or {})}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise PackageError(f"{' '.join(command[:5])}...: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def main(argv: Sequence[str] | None = None) -> int:
    """Build the packages; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.debian_package", description="Make the Debian packages.")
    parser.add_argument("--out", type=Path, default=dist.ROOT / "dist", metavar="DIR", help="where to (default: dist)")
    try:
        for package in build(parser.parse_args(argv).out):
            sys.stdout.write(f"{package}: {package.stat().st_size / 1e6:.1f} MB\n")
    except PackageError as error:
        sys.stderr.write(f"make deb: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
