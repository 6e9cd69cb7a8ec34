"""Which spark-submit line does the same as this command?"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from namesrv_spark_jobs.command.py_files import NAME, PACKAGE

_ENTRY: Final = "stale_routes.py"


def submit_line(
    master: str, deploy_mode: str | None, conf: Mapping[str, str], arguments: Sequence[str], *, package: Path = PACKAGE
) -> str:
    """One line for a shell; `arguments` are those of the report itself."""
    # in the source tree `make spark-zip` puts it into dist/; where the package is installed there is no such folder
    entry = package.parent / _ENTRY
    in_tree = entry.is_file()
    words = ["spark-submit", "--master", master]
    words += ["--deploy-mode", deploy_mode] if deploy_mode else []
    words += [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    words += ["--py-files", str(package.parents[1] / "dist" / NAME) if in_tree else NAME]
    words += [str(entry) if in_tree else str(package / "__main__.py")]
    return shlex.join([*words, *arguments])
