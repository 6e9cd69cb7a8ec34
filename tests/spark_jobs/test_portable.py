"""The analysis uses DataFrame functions only, so it runs on any cluster without Python code on the executors."""

import ast
import re
from pathlib import Path

import pytest

import namesrv_spark_jobs
from namesrv_spark_jobs.engines.embedded import columns

FILES = sorted(Path(namesrv_spark_jobs.__file__).parent.rglob("*.py"))
# Methods that need the same Python on every executor, or a JVM beside the driver.
FORBIDDEN = {
    *("udf", "pandas_udf", "udtf", "mapInPandas", "mapInArrow", "applyInPandas", "applyInArrow", "cogroup"),
    *("rdd", "sparkContext", "_jvm", "_jdf", "_sc", "_jsparkSession", "toPandas", "foreach", "foreachPartition"),
}
# Methods that bring rows to the driver, and the modules that may call these methods.
DRIVER = {"collect", "toLocalIterator", "take", "first", "cache", "persist"}
ENTRIES = {"analysis.py", "pipeline.py", "spark.py", "engine.py", "tables.py"} | {
    file.name for file in FILES if file.parent.name == "reading"
}
SHELL = {"session.py"}


def _nodes(file: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))


def _methods(file: Path) -> list[tuple[ast.Call, str]]:
    """Calls of methods, except on the functions module and on literals."""
    found = [node for node in _nodes(file) if isinstance(node, ast.Call)]
    called = [(node, node.func) for node in found if isinstance(node.func, ast.Attribute)]
    return [
        (node, func.attr)
        for node, func in called
        if not isinstance(func.value, ast.Constant | ast.JoinedStr)
        and not (isinstance(func.value, ast.Name) and func.value.id == "F")
    ]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_only_dataframe_functions(file: Path) -> None:
    """The analysis also runs through Spark Connect; transforms are lazy, and only entry points run jobs.

    Every join has a `how`, since an inner join drops rows.
    """
    used = {node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "") for node in _nodes(file)}
    methods = _methods(file)

    assert set() == used & FORBIDDEN - ({"sparkContext"} if file.name in SHELL else set())
    assert file.name in ENTRIES or set() == {name for _, name in methods} & DRIVER
    if "F" in used:
        joins = [node for node, name in methods if name == "join"]
        assert [ast.unparse(join) for join in joins if "how" not in {keyword.arg for keyword in join.keywords}] == []


def test_functions_are_those_that_both_engines_have() -> None:
    """The embedded engine has exactly the functions of PySpark that the analysis calls and the manual lists."""
    analysis = [file for file in FILES if "engines" not in file.parts]
    called = {
        node.attr
        for file in analysis
        for node in _nodes(file)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "F"
    }
    manual = Path(namesrv_spark_jobs.__file__).parents[1] / "README.md"
    (sentence,) = re.findall(r"A transform may call the functions of PySpark .*", manual.read_text(encoding="utf-8"))
    public = {name for name in vars(columns) if not name.startswith("_") and name.islower()}

    # The last functions are for the engine itself.
    assert called == public - {"re", "json_shape", "ordered", "quoted", "sql_type", "text"}
    assert called == set(re.findall(r"`(\w+)`", sentence))
