"""Reads the locks of this tree, as locks/compile.sh has them written."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Locked:
    """An entry of a lock."""

    # as pip reads it, with its hashes
    text: str
    version: str
    hashes: Sequence[str]
    # the packages that need it
    via: frozenset[str]


def read_lock(lock: Path) -> dict[str, Locked]:
    """The entries of a lock by name."""
    entries = re.findall(r"^(\S+)==(\S+)(.*(?:\n    --.*)*)\n    # via (.*)", lock.read_text(), re.MULTILINE)
    return {
        name: Locked(
            f"{name}=={version}{rest}",
            version,
            re.findall(r"--hash=sha256:(\w+)", rest),
            frozenset(package_of(one) for one in via.split(", ")),
        )
        for name, version, rest, via in entries
    }


def package_of(requirement: str) -> str:
    """The name of the package that a requirement is for."""
    return re.split(r"[^\w.-]", requirement)[0]
