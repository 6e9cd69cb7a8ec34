"""Does a shell complete our commands?"""

import shutil
import subprocess
import sys

import pytest

from tests.support.ctl import run


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
    assert "'tcsh' is none of bash, zsh, fish, powershell" in " ".join(refused.err.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_commands_and_options() -> None:
    """As bash asks for it; what is hidden stays hidden."""
    script = run("completion", "bash").out

    def completed(*words: str) -> list[str]:
        line = " ".join(f"'{word}'" for word in words)
        ask = f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _namesrvctl_completion namesrvctl"
        # the function calls the command by its name
        command = f'namesrvctl() {{ {sys.executable} -m namesrv_client.ctl "$@"; }}; export -f namesrvctl'
        done = subprocess.run(
            [
                "bash",
                "-c",
                f'{command}\n{ask.replace("$1 ) )", "bash -c namesrvctl ) )")}\nprintf "%s\\n" "${{COMPREPLY[@]}}"',
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        return [word for word in done.stdout.split("\n") if word]

    assert ["clusters", "connections", "completion", "config"] == completed("namesrvctl", "c")
    assert ["--namesrvAddr"] == completed("namesrvctl", "topicList", "--n")
    assert ["--connections"] == completed("namesrvctl", "bench", "--c")
