"""docker/check/bundle.py hands an image to a runtime as closed as compose.yml does."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.guard import GUARD_SECONDS

SCRIPT = Path(__file__).parents[2] / "docker" / "check" / "bundle.py"
IMAGE = {
    "Docker": {
        "config": {
            "User": "10001:10001",
            "Env": ["PATH=/bin"],
            "Entrypoint": ["/bin/serve"],
            "Cmd": ["--config", "/etc/x"],
            "WorkingDir": "/var/lib/x",
            "Volumes": {"/var/lib/x": {}},
            "Healthcheck": {"Test": ["CMD", "/bin/check", "/livez"]},
        }
    }
}


def bundled(tmp_path: Path, *flags: str) -> tuple[dict[str, Any], list[str]]:
    """The runtime's configuration, and what was printed."""
    (tmp_path / "image.json").write_text(json.dumps(IMAGE), encoding="utf-8")
    place = ("--netns", "/run/netns/h1", "--hostname", "h1", "--data", str(tmp_path))
    done = subprocess.run(
        [
            sys.executable,
            str(SCRIPT),
            str(tmp_path / "image.json"),
            "/rootfs",
            str(tmp_path / "bundle"),
            *place,
            *flags,
        ],
        capture_output=True,
        text=True,
        timeout=GUARD_SECONDS,
        check=True,
    )
    config: dict[str, Any] = json.loads((tmp_path / "bundle" / "config.json").read_text(encoding="utf-8"))
    return config, done.stdout.splitlines()


def test_nothing_can_be_written_but_the_volume_and_tmp(tmp_path: Path) -> None:
    """The root is read-only, and so is what is mounted besides."""
    config, _ = bundled(tmp_path, "--mount", "/a:/etc/x")
    binds = {mount["destination"]: mount["options"] for mount in config["mounts"] if mount["type"] == "bind"}

    assert config["root"] == {"path": "/rootfs", "readonly": True}
    assert binds.keys() == {"/var/lib/x", "/etc/x"}
    assert ("rw" in binds["/var/lib/x"], "ro" in binds["/etc/x"]) == (True, True)


def test_the_process_is_the_images_own_without_rights(tmp_path: Path) -> None:
    """Its user, its command, its health check; no capability, and none to be had."""
    config, printed = bundled(tmp_path)
    process = config["process"]

    assert process["user"] == {"uid": 10001, "gid": 10001}
    assert process["args"] == ["/bin/serve", "--config", "/etc/x"]
    assert process["noNewPrivileges"]
    assert not any(process["capabilities"].values())
    assert printed == ["/bin/check", "/livez"]
