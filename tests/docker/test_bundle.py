"""docker/check/bundle.py hands an image to a runtime as closed as compose.yml does."""

import json
from pathlib import Path
from typing import Any

from tests.docker.commands import run

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


def test_a_container_is_as_closed_as_compose_makes_it(tmp_path: Path) -> None:
    """Nothing can be written but the volume and /tmp; the image's own user, command and health check; no capability."""
    image, bundle = tmp_path / "image.json", tmp_path / "bundle"
    image.write_text(json.dumps(IMAGE), encoding="utf-8")
    flags = ("--netns", "/run/netns/h1", "--hostname", "h1", "--data", str(tmp_path), "--mount", "/a:/etc/x")
    done = run(str(SCRIPT), str(image), "/rootfs", str(bundle), *flags)
    assert (0, ["/bin/check", "/livez"]) == (done.returncode, done.stdout.splitlines())

    config: dict[str, Any] = json.loads((bundle / "config.json").read_text(encoding="utf-8"))
    process = config["process"]
    binds = {mount["destination"]: mount["options"] for mount in config["mounts"] if mount["type"] == "bind"}
    assert config["root"] == {"path": "/rootfs", "readonly": True}
    assert binds.keys() == {"/var/lib/x", "/etc/x"}
    assert ("rw" in binds["/var/lib/x"], "ro" in binds["/etc/x"]) == (True, True)
    assert process["user"] == {"uid": 10001, "gid": 10001}
    assert process["args"] == ["/bin/serve", "--config", "/etc/x"]
    assert process["noNewPrivileges"]
    assert not any(process["capabilities"].values())
