"""What was measured, as JSON that grows row by row, and as the page."""

import importlib.util
import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.conditions import Clocks, others_share, processor
from benchmarks.figures import Figure, Target, spelt, spelt_target
from tests.scoreboard.row import Row

_HEADINGS: Final = ("id", "what", "target", "figures", "result", "how", "date", "commit", "machine", "command")

_INTRODUCTION: Final = (
    "# Scoreboard",
    "",
    "What we promise, and what was measured.",
    "`make scoreboard` measures every row again, `make scoreboard ARGS='--only D1 F4'` only these.",
    "[testing.md](testing.md#the-scoreboard) says how a row is added.",
    "All figures, round by round, are in [scoreboard.json](scoreboard.json).",
)
_CROWDED_SHARE: Final = 0.5
_CONDITIONS: Final = (
    "Load is the machine's load average when the row began, others the share of the processors that other work took; "
    "a commit with a plus had changes that were not committed."
)

Results = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Conditions:
    """When a row was measured, on what, and beside whom."""

    began: Clocks
    load: float

    @classmethod
    def now(cls) -> "Conditions":
        """Those of the row that begins."""
        return cls(Clocks.now(), os.getloadavg()[0])

    def members(self) -> dict[str, Any]:
        """For the row that has ended."""
        clocks, count = Clocks.now(), os.cpu_count() or 1
        loop = "uvloop" if importlib.util.find_spec("uvloop") else "asyncio"
        model = processor(Path("/proc/cpuinfo").read_text(encoding="utf-8"))
        return {
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            # with a plus when what was measured is not just that; what we write does not count
            "commit": _git("rev-parse", "--short=9", "HEAD")
            + ("+" if _git("status", "--porcelain", *_SOURCES) else ""),
            "machine": f"{count} x {model}, {platform.system()} {platform.release()}, "
            f"CPython {platform.python_version()} with {loop}",
            "load_average": round(self.load, 1),
            "others_share": round(others_share(self.began, clocks, count), 2),
            "took_seconds": round(clocks.wall - self.began.wall, 1),
        }


_SOURCES: Final = ("--", ":/", ":(top,exclude)docs/scoreboard.*")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    return done.stdout.strip()


def result(name: str, row: Row, size: int, figures: Sequence[Figure], conditions: Mapping[str, Any]) -> dict[str, Any]:
    """A row that was measured, for the JSON."""
    return {
        "what": row.what,
        "target": row.target,
        "how": row.how.format(size=f"{size:,}"),
        "figures": [_members(figure) for figure in figures],
        "green": is_green(figures),
        "why": "" if is_green(figures) else row.why or _crowded(row, conditions),
        "command": f"make scoreboard ARGS='{'--short ' if size == row.short != row.size else ''}--only {name}'",
        **conditions,
    }


def _crowded(row: Row, conditions: Mapping[str, Any]) -> str:
    """The reason that everything has beside other work; empty when there was none, or it does not matter."""
    is_crowded = conditions["others_share"] >= _CROWDED_SHARE
    return "other work took most of the machine: measure it again on a quiet one" if row.is_timed and is_crowded else ""


def is_green(figures: Sequence[Figure]) -> bool:
    """Whether every figure with a target meets it, and there is one."""
    verdicts = {figure.verdict for figure in figures} - {""}
    return verdicts == {"met"}


def _members(figure: Figure) -> dict[str, Any]:
    target = None if figure.target is None else {"sign": figure.target.sign, "bound": figure.target.bound}
    return {
        "name": figure.name,
        "what": figure.what,
        "unit": figure.unit,
        "value": figure.value,
        "values": list(figure.values),
        "target": target,
        "verdict": figure.verdict or None,
        "behind": figure.behind,
    }


def figure_of(members: Mapping[str, Any]) -> Figure:
    """A figure, read from JSON as `_members` and `make bench` write it."""
    target = members["target"] and Target(**members["target"])
    return Figure(
        members["name"], members["what"], members["unit"], tuple(members["values"]), target, members["behind"]
    )


def load(path: Path) -> Results:
    """What was measured until now; nothing if nothing was."""
    if not path.exists():
        return {}
    rows: Results = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return rows


def save(path: Path, results: Results) -> None:
    """Write all that was measured."""
    path.write_text(json.dumps({"rows": results}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def page(sections: Mapping[str, Sequence[str]], results: Results) -> str:
    """The page: each row that has a figure, under its heading; at the end those that have none."""
    measured = [name for names in sections.values() for name in names if name in results]
    green = sum(results[name]["green"] for name in measured)
    count = sum(map(len, sections.values()))
    counts = f"{green} of {count} rows are green, {len(measured) - green} red, {count - len(measured)} not measured."
    lines = [*_INTRODUCTION, "", counts]
    for title, names in sections.items():
        rows = [name for name in names if name in results]
        if rows:
            lines += ["", f"## {title}", "", _cells(_HEADINGS), _cells(["---"] * len(_HEADINGS))]
            lines += [_line(name, results[name]) for name in rows]
    machines = sorted({results[name]["machine"] for name in measured})
    lines += ["", "## Machines", ""]
    lines += [f"* {_letter(machines, machine)}: {machine}" for machine in machines]
    lines += ["", _CONDITIONS]
    missing = [name for names in sections.values() for name in names if name not in results]
    if missing:
        lines += ["", "## Not measured yet", "", ", ".join(missing)]
    text = "\n".join(lines) + "\n"
    for machine in machines:
        text = text.replace(f"| {machine},", f"| {_letter(machines, machine)},")
    return text


def _letter(machines: Sequence[str], machine: str) -> str:
    return chr(ord("A") + machines.index(machine))


def spelt_figure(figure: Figure) -> str:
    """A figure in one line, its target and what stands behind it included."""
    target = spelt_target(figure.target, figure.unit)
    said = f"{figure.what}: **{spelt(figure.value, figure.unit)}**" + (f" ({target})" if target else "")
    return f"{said}; {figure.behind}" if figure.behind else said


def _line(name: str, row: Mapping[str, Any]) -> str:
    figures = "<br>".join(spelt_figure(figure_of(members)) for members in row["figures"])
    where = f"{row['machine']}, load {row['load_average']:g}, others {row['others_share']:.0%}"
    verdict = "green" if row["green"] else ": ".join(filter(None, ("**red**", row["why"])))
    said = (name, row["what"], row["target"], figures, verdict, row["how"])
    made = (row["date"], f"`{row['commit']}`", where, f"`{row['command']}`")
    return _cells([cell.replace("|", "\\|") for cell in (*said, *made)])


def _cells(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
