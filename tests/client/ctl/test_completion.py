"""A shell completes our commands."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.ctl import COMMAND, run


@pytest.mark.parametrize(
    ("shell", "begin"),
    [
        ("bash", "_namesrvctl_completion() {"),
        ("zsh", "#compdef namesrvctl"),
        ("fish", "complete --command namesrvctl"),
        ("powershell", "Import-Module PSReadLine"),
    ],
)
def test_script_is_printed(shell: str, begin: str) -> None:
    """For the shell that is named, or the one that SHELL names."""
    named = run("completion", shell)

    assert (0, "") == (named.code, named.err)
    assert begin == named.out[: len(begin)]
    assert named == run("completion", env={"SHELL": f"/usr/bin/{shell}"})


def test_unknown_shell_is_wrong_usage() -> None:
    """Nothing is printed for it."""
    for refused in (run("completion", "tcsh"), run("completion", env={"SHELL": "/bin/tcsh"})):
        assert (2, "") == (refused.code, refused.out)
    assert "unknown shell 'tcsh' (one of bash, zsh, fish," in " ".join(refused.err.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    """As bash asks for it; what is hidden stays hidden."""
    command = tmp_path / "namesrvctl"
    command.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    command.chmod(0o755)
    script = run("completion", "bash").out

    def completed(*words: str) -> list[str]:
        asked = f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; _namesrvctl_completion namesrvctl"
        done = subprocess.run(
            ["bash", "-c", f'{script}\n{asked}\nprintf "%s\\n" "${{COMPREPLY[@]}}"'],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        )
        return done.stdout.split()

    assert ["clusters", "connections", "completion", "config"] == completed("namesrvctl", "c")
    assert ["--namesrvAddr"] == completed("namesrvctl", "topicList", "--na")
    assert ["--cluster"] == completed("namesrvctl", "brokers", "--c")
