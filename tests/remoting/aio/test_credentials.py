"""Sources of the access key and its secret."""

import traceback
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from namesrv_remoting.aio.credentials import SigningSettings


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No credentials in the environment, and a file with a secret."""
    for name in ("ACCESS_KEY", "SECRET_KEY", "SECRET_KEY_FILE"):
        monkeypatch.delenv(f"NAMESRV_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("secret").write_text("from-file\n")
    return tmp_path


@pytest.mark.parametrize(
    ("given", "environment", "found"),
    [
        ({}, {}, None),
        ({"access_key": "k", "secret_key": "s"}, {}, ("k", b"s")),
        ({"access_key": "k", "secret_key_file": "secret"}, {}, ("k", b"from-file")),
        ({}, {"ACCESS_KEY": "e", "SECRET_KEY": "\xe9"}, ("e", b"\xc3\xa9")),
        ({}, {"ACCESS_KEY": "e", "SECRET_KEY_FILE": "secret"}, ("e", b"from-file")),
        ({"access_key": "k"}, {"ACCESS_KEY": "e", "SECRET_KEY": "es"}, ("k", b"es")),
        # the environment's secret does not conflict with a given one
        ({"access_key": "k", "secret_key_file": "secret"}, {"SECRET_KEY": "es"}, ("k", b"from-file")),
        ({"access_key": "k", "secret_key": "s"}, {"SECRET_KEY_FILE": "missing"}, ("k", b"s")),
        ({"access_key": None, "secret_key": None}, {"ACCESS_KEY": "", "SECRET_KEY": ""}, None),
    ],
)
def test_credentials_come_from_settings_or_environment(
    given: dict[str, Any], environment: dict[str, str], found: tuple[str, bytes] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given values take precedence; an empty variable counts as unset."""
    for name, value in environment.items():
        monkeypatch.setenv(f"NAMESRV_{name}", value)

    credentials = SigningSettings(**given).credentials(lambda: 0.0)

    assert (None if credentials is None else (credentials.access_key, credentials.secret)) == found


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"access_key": "k"}, "access_key is set, but secret_key (NAMESRV_SECRET_KEY) is not"),
        ({"secret_key": "hunter2"}, "secret_key is set, but access_key (NAMESRV_ACCESS_KEY) is not"),
        (
            {"access_key": "k", "secret_key": "hunter2", "secret_key_file": "secret"},
            "secret_key and secret_key_file exclude each other",
        ),
        ({"access_key": "k", "secret_key_file": "missing"}, "secret_key_file missing: No such file or directory"),
        ({"access_key": "k", "secret_key_file": 5}, "secret_key_file 5: No such file or directory"),
        ({"access_key": "k", "secret_key_file": "latin-1"}, "secret_key_file latin-1: not UTF-8"),
        ({"access_key": "k", "secret_key_file": "empty"}, "secret_key_file empty: empty"),
        ({"access_key": "k", "secret_key": ["hunter2"]}, "secret_key: input should be a valid string"),
        (
            {"access_key": "k", "secret_key": ""},
            "secret_key: value should have at least 1 item after validation, not 0",
        ),
        # from an environment variable with a byte that is not UTF-8
        ({"access_key": "k", "secret_key": "hunter2\udcff"}, "secret_key: not valid Unicode"),
        ({"access_key": "", "secret_key": "hunter2"}, "access_key: '': string should have at least 1 character"),
        ({"access_key": "k", "secret_key": "hunter2", "x": 1}, "unknown setting x"),
    ],
)
def test_wrong_credentials_are_refused_without_showing_the_secret(given: dict[str, Any], problem: str) -> None:
    """Neither the message nor the traceback contains the secret."""
    Path("latin-1").write_bytes(b"\xe9")
    Path("empty").write_bytes(b"\n")
    with pytest.raises(ValueError, match=r".") as caught:
        SigningSettings(**given)

    assert str(caught.value) == problem
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_settings_do_not_show_the_secret() -> None:
    """Settings are logged, compared and dumped."""
    settings = SigningSettings(access_key="k", secret_key=SecretStr("hunter2"))

    assert settings == SigningSettings(access_key="k", secret_key=SecretStr("hunter2"))
    assert "hunter2" not in f"{settings!r} {settings} {settings.model_dump()} {settings.credentials(lambda: 0.0)!r}"
