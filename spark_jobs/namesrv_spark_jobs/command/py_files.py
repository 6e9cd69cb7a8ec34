"""Write this package as a zip for `spark-submit --py-files`: `python -m namesrv_spark_jobs.command.py_files ZIP`."""

import sys
import zipfile
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parents[1]
NAME: Final = "namesrv_spark_jobs.zip"
# the oldest that a zip can tell
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


def build(target: Path) -> int:
    """Write the zip, the same sources to the same bytes; how many files are in it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    files = sorted(path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            entry = zipfile.ZipInfo(path.relative_to(PACKAGE.parent).as_posix(), _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes())
    return len(files)


if __name__ == "__main__":
    out = Path(sys.argv[1] if len(sys.argv) > 1 else NAME)
    sys.stdout.write(f"{out}: {build(out)} files\n")
