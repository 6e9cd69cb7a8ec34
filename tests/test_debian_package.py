"""The Debian packages, as far as they can be checked without dpkg."""

from pathlib import Path

from tools.debian_package import remove_shared


def test_package_keeps_the_files_that_only_it_has(tmp_path: Path) -> None:
    """Both packages have files in namesrv_spark_jobs: the console reads logs with a part of the report."""
    server, report = tmp_path / "server", tmp_path / "report"
    for file in (server / "namesrv_spark_jobs/history/model.py", server / "jinja2/__init__.py"):
        file.parent.mkdir(parents=True)
        file.touch()
    for name in ("namesrv_spark_jobs/history/model.py", "namesrv_spark_jobs/analysis.py", "jinja2/__init__.py"):
        (report / name).parent.mkdir(parents=True, exist_ok=True)
        (report / name).touch()

    remove_shared(report, server)

    assert sorted(report.rglob("*")) == [report / "namesrv_spark_jobs", report / "namesrv_spark_jobs/analysis.py"]
