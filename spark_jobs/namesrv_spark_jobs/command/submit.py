"""This package under spark-submit: the equivalent command, and the zip for --py-files."""

import shlex
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parents[1]
NAME: Final = "namesrv_spark_jobs.zip"
# the oldest time that a zip can store
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_ENTRY: Final = "stale_routes.py"


def build(target: Path) -> int:
    """Write the zip, and return the number of its files. Equal sources give equal bytes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    files = sorted(path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            entry = zipfile.ZipInfo(path.relative_to(PACKAGE.parent).as_posix(), _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes())
    return len(files)


def submit_line(master: str, deploy_mode: str | None, conf: Mapping[str, str], arguments: Sequence[str]) -> str:
    """The spark-submit command as one line for a shell; `arguments` are the report's own."""
    # In the source tree, `make spark-zip` writes the zip to dist/; an installed package has no such folder.
    entry = PACKAGE.parent / _ENTRY
    in_tree = entry.is_file()
    words = ["spark-submit", "--master", master]
    words += ["--deploy-mode", deploy_mode] if deploy_mode else []
    words += [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    words += ["--py-files", str(PACKAGE.parents[1] / "dist" / NAME) if in_tree else NAME]
    words += [str(entry) if in_tree else str(PACKAGE / "__main__.py")]
    return shlex.join([*words, *arguments])


if __name__ == "__main__":
    out = Path(sys.argv[1] if len(sys.argv) > 1 else NAME)
    sys.stdout.write(f"{out}: {build(out)} files\n")
