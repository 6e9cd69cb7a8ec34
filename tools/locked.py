"""Reads the lock files, which locks/compile.sh writes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Locked:
    """An entry of a lock."""

    # The requirement in pip's format, with its hashes.
    text: str
    version: str
    hashes: Sequence[str]
    # The packages that require this one.
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
    """The name of the package in a requirement."""
    return re.split(r"[^\w.-]", requirement)[0]
