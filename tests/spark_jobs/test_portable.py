"""The analysis keeps to what runs anywhere: DataFrame functions, and no Python on the executors."""

import ast
from pathlib import Path

import pytest

import namesrv_spark_jobs

FILES = sorted(Path(namesrv_spark_jobs.__file__).parent.rglob("*.py"))
# what needs a Python of the same kind on every executor, or a JVM beside the driver
FORBIDDEN = {
    *("udf", "pandas_udf", "udtf", "mapInPandas", "mapInArrow", "applyInPandas", "applyInArrow", "cogroup"),
    *("rdd", "sparkContext", "_jvm", "_jdf", "_sc", "_jsparkSession", "toPandas", "foreach", "foreachPartition"),
}
# what is brought to the driver, and where that may be done
DRIVER = {"collect", "toLocalIterator", "take", "first", "cache", "persist"}
ENTRIES = {"analysis.py", "pipeline.py", "follow.py"}
SHELL = {"session.py"}


def names(file: Path) -> set[str]:
    """Every attribute and name that a file uses."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return attributes | {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def calls(file: Path, called: set[str]) -> set[str]:
    """The methods of these names that a file calls on something other than the functions module."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    found = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    methods = [func for func in found if isinstance(func, ast.Attribute) and func.attr in called]
    return {func.attr for func in methods if not (isinstance(func.value, ast.Name) and func.value.id == "F")}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_only_dataframe_functions(file: Path) -> None:
    """Such code runs through Spark Connect, too."""
    assert set() == names(file) & FORBIDDEN - ({"sparkContext"} if file.name in SHELL else set())


@pytest.mark.parametrize("file", [file for file in FILES if file.name not in ENTRIES], ids=lambda file: file.name)
def test_nothing_is_collected_or_cached_on_the_way(file: Path) -> None:
    """Transforms are lazy: only the entries run jobs."""
    assert set() == calls(file, DRIVER)


@pytest.mark.parametrize("file", [file for file in FILES if "F" in names(file)], ids=lambda file: file.name)
def test_every_join_says_how(file: Path) -> None:
    """An inner join drops rows: that is said where it is done."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    joins = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "join"
        # texts are joined, too
        and not isinstance(node.func.value, ast.Constant | ast.JoinedStr)
    ]

    assert [] == [ast.unparse(join) for join in joins if "how" not in {keyword.arg for keyword in join.keywords}]
