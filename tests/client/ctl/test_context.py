"""The `context` commands, and the effect of a context on other commands."""

import json
import stat
from pathlib import Path

import pytest
import typer

from namesrv_client.ctl.options import Options, options_of
from tests.support.ctl import Result, run

SECRET = "this is the secret itself"


@pytest.fixture(name="home")
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of saved contexts, without NAMESRV_ variables in the environment."""
    for name in ("NAMESRV_ADDR", "NAMESRV_ACCESS_KEY", "NAMESRV_SECRET_KEY", "NAMESRV_TLS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def saved(home: Path, *args: str, **env: str) -> Result:
    """Run a command with its contexts in this directory."""
    return run(*args, env={"XDG_CONFIG_HOME": str(home), **env})


def test_context_is_added_used_shown_and_removed(home: Path) -> None:
    """File paths are saved as absolute ones, secrets never, and only the owner can read the file."""
    (home / "secret").write_text(SECRET)
    given = ("-s", "ns1;ns2:1", "--tls", "--tls-ca-file", "ca.pem", "--access-key", "ops")
    added = saved(home, "context", "add", "prod", *given, "--secret-key-file", str(home / "secret"))
    saved(home, "context", "add", "test", "-s", "ns3")

    assert (added.code, added.err) == (0, "")
    assert saved(home, "context", "use", "prod").code == 0
    file = home / "namesrvctl" / "contexts.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert SECRET not in file.read_text()
    members = {
        "servers": ["ns1:9876", "ns2:1"],
        "tls": True,
        "tls_ca_file": str(Path("ca.pem").absolute()),
        "access_key": "ops",
        "secret_key_file": str(home / "secret"),
    }
    assert saved(home, "context", "show", "-o", "json").json == {"name": "prod", "in_use": True, **members}
    listed = saved(home, "context", "list")
    assert [row[:2] for row in listed.cells[1:]] == [["prod", "yes"], ["test", "no"]]

    assert saved(home, "context", "remove", "prod").code == 0
    assert saved(home, "context", "show")[:2] == (2, "")
    assert [one["name"] for one in saved(home, "context", "list", "-o", "json").json["contexts"]] == ["test"]


def test_environment_is_saved_without_secrets(home: Path) -> None:
    """The path of a secret's file is saved with its key; a secret in a variable is not."""
    (home / "secret").write_text(SECRET)
    key = {"NAMESRV_ACCESS_KEY": "ops"}
    saved(home, "context", "add", "a", NAMESRV_ADDR="ns1", NAMESRV_SECRET_KEY_FILE=str(home / "secret"), **key)
    saved(home, "context", "add", "b", NAMESRV_ADDR="ns1", NAMESRV_SECRET_KEY=SECRET, **key)

    found = json.loads((home / "namesrvctl" / "contexts.json").read_text())["contexts"]
    assert found["a"] == {"servers": ["ns1:9876"], "access_key": "ops", "secret_key_file": str(home / "secret")}
    assert found["b"] == {"servers": ["ns1:9876"]}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("add", "prod", "-s", "ns9"), "context prod exists; --yes replaces it"),
        (("add", "../x"), "'../x' (letters, digits"),
        (("add", "x", "--tls-ca-file", "f"), "tls_ca_file is set, but tls is not"),
        (("use", "nope"), "unknown context 'nope' (one of prod)"),
        (("show",), "no context is in use"),
        (("remove", "nope"), "unknown context 'nope'"),
    ],
)
def test_wrong_usage_changes_nothing(home: Path, args: tuple[str, ...], message: str) -> None:
    """The message contains the name, and the file of contexts stays the same."""
    saved(home, "context", "add", "prod", "-s", "ns1")
    before = (home / "namesrvctl" / "contexts.json").read_bytes()

    refused = saved(home, "context", *args, COLUMNS="200")

    assert (refused.code, refused.out) == (2, "")
    assert message in refused.err
    assert (home / "namesrvctl" / "contexts.json").read_bytes() == before


@pytest.mark.parametrize(
    "text", ["", "[]", '{"contexts": {"a": {}}}', '{"contexts": {"a": {"servers": ["b:1"], "x": 1}}}']
)
def test_damaged_file_is_named(home: Path, text: str) -> None:
    """A damaged file of contexts is wrong usage, and no server receives a request."""
    (home / "namesrvctl").mkdir()
    (home / "namesrvctl" / "contexts.json").write_text(text)

    refused = saved(home, "status", COLUMNS="300")

    assert (refused.code, refused.out) == (2, "")
    assert "contexts.json: not a file of contexts" in refused.err


def test_context_is_used_as_a_whole_or_not_at_all(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers named otherwise never receive the credentials of a context, unless --context asks for it."""
    saved(home, "context", "add", "prod", "-s", "ns1", "--tls", "--access-key", "ops")
    saved(home, "context", "use", "prod")

    def meant(options: Options) -> tuple[tuple[str, ...], bool, str | None]:
        return options.addresses, options.tls.tls, options.signing_given.get("access_key")  # type: ignore[return-value]

    assert meant(options_of()) == (("ns1:9876",), True, "ops")
    assert meant(options_of(server=["x"])) == (("x:9876",), False, None)
    assert meant(options_of(server=["x"], context="prod")) == (("x:9876",), True, "ops")
    monkeypatch.setenv("NAMESRV_ADDR", "y")
    assert meant(options_of()) == (("y:9876",), False, None)
    assert meant(options_of(context="prod")) == (("ns1:9876",), True, "ops")
    with pytest.raises(typer.BadParameter, match="unknown context 'nope'"):
        options_of(context="nope")
