"""Writes the config.json with which an OCI runtime starts an image as compose.yml does: read-only, no capabilities.

    python docker/check/bundle.py INSPECTED ROOTFS BUNDLE --netns PATH --hostname NAME --data DIR [--mount FROM:TO]

INSPECTED is a file with the output of `buildah inspect --type image`. The script writes BUNDLE/config.json, and prints
the command of the image's HEALTHCHECK, one argument per line.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_TMPFS_OPTIONS = ["nosuid", "nodev", "noexec", "mode=1777", "size=64m"]
_MASKED = ["/proc/kcore", "/proc/keys", "/proc/sysrq-trigger", "/sys/firmware"]


def image_config(inspected: dict[str, Any]) -> dict[str, Any]:
    """The image's configuration, with the names of Docker's format."""
    config: dict[str, Any] = inspected["Docker"]["config"]
    return config


def process(config: dict[str, Any], args: Sequence[str]) -> dict[str, Any]:
    """The container's first process: the command and the user of the image, without capabilities."""
    uid, gid = (int(number) for number in config["User"].split(":"))
    return {
        "user": {"uid": uid, "gid": gid},
        "args": [*(config.get("Entrypoint") or []), *(args or config.get("Cmd") or [])],
        "env": [*config["Env"], "NAMESRV_DRAIN_SECONDS=1", "NAMESRV_LOG_FORMAT=json"],
        "cwd": config["WorkingDir"],
        "noNewPrivileges": True,
        "capabilities": {name: [] for name in ("bounding", "effective", "inheritable", "permitted", "ambient")},
    }


def mounts(writable: str, data: Path, more: Sequence[str]) -> list[dict[str, Any]]:
    """The mounts of the container; only the volume and a small /tmp are writable."""
    return [
        {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=64k"]},
        {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": _TMPFS_OPTIONS},  # noqa: S108
        {"destination": writable, "type": "bind", "source": str(data), "options": ["rbind", "rw", "nosuid", "nodev"]},
        *(
            {"destination": to, "type": "bind", "source": source, "options": ["rbind", "ro", "nosuid", "nodev"]}
            for source, _, to in (entry.partition(":") for entry in more)
        ),
    ]


def bundle(options: argparse.Namespace, config: dict[str, Any]) -> dict[str, Any]:
    """The whole config.json."""
    (volume,) = config["Volumes"]
    namespaces: list[dict[str, str]] = [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")]
    return {
        "ociVersion": "1.0.2",
        "root": {"path": str(options.rootfs.resolve()), "readonly": True},
        "hostname": options.hostname,
        "process": process(config, options.args),
        "mounts": mounts(volume, options.data.resolve(), options.mount),
        "linux": {
            "namespaces": [*namespaces, {"type": "network", "path": options.netns}],
            "maskedPaths": _MASKED,
        },
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Write config.json; returns the exit code."""
    parser = argparse.ArgumentParser(description="Writes the config.json of an OCI runtime for an image.")
    parser.add_argument("inspected", type=Path)
    parser.add_argument("rootfs", type=Path)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--netns", required=True)
    parser.add_argument("--hostname", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--mount", action="append", default=[], help="FROM:TO, read-only")
    parser.add_argument("args", nargs="*")
    options = parser.parse_args(argv)
    config = image_config(json.loads(options.inspected.read_text(encoding="utf-8")))
    options.bundle.mkdir(parents=True, exist_ok=True)
    text = json.dumps(bundle(options, config), indent=2)
    (options.bundle / "config.json").write_text(text, encoding="utf-8")
    check: list[str] = config["Healthcheck"]["Test"]
    sys.stdout.write("\n".join(check[1:]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
