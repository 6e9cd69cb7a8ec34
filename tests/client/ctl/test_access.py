"""The `access` commands: check and explain access files without a server, and generate keys."""

import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_client.ctl.commands.access import judge
from namesrv_remoting.access import GRANTABLE, Account, Patterns, Permission, Rule, parse_access_file
from namesrv_remoting.requests import REQUESTS
from tests.support.ctl import run

FILE = """
[accounts.reader]
secrets = ["hunter2-reader"]
may = ["route-read"]

[accounts.broker]
secrets = ["hunter2-new", "hunter2-old"]
networks = ["10.0.0.0/8"]
expires = 2099-01-01T00:00:00Z
may = ["route-read", { access = "broker-control", clusters = ["c1"], topics = ["a*"] }]

[accounts.operator]
access_key = "opkey"
secrets = ["hunter2-op"]
certificates = ["op.example"]
may = ["admin-write", { access = "admin-read", clusters = ["c1"] }]

[accounts.trusted]
secrets = ["hunter2-trusted"]
trust_rocketmq_signatures = true
may = ["admin-write"]

[accounts.former]
secrets = ["hunter2-former"]
expires = 2001-01-01T00:00:00Z
may = ["route-read"]
"""
NATIVE_ONLY = "only if signed natively: a RocketMQ signature is not enough"


@pytest.fixture(name="file")
def written(tmp_path: Path) -> str:
    """An access file with an account of each kind."""
    path = tmp_path / "access.toml"
    path.write_text(FILE)
    return str(path)


def test_check_lists_accounts_without_their_secrets(file: str) -> None:
    """The list shows the number of an account's secrets and never a secret."""
    done = run("access", "check", file)

    assert (done.code, done.err) == (0, "")
    assert done.cells[0] == ["ACCOUNT", "ACCESS KEY", "SECRETS", "CERTIFICATES", "NETWORKS", "EXPIRES", "MAY"]
    may = "route-read | broker-control; clusters c1; topics a*"
    assert done.cells[2] == ["broker", "broker", "2", "-", "10.0.0.0/8", "2099-01-01 00:00:00+00:00", may]
    assert done.cells[3][:4] == ["operator", "opkey", "1", "op.example"]
    assert "hunter2" not in done.out + run("access", "check", file, "-o", "json").out


@pytest.mark.parametrize(
    ("text", "code", "problem"),
    [
        (b"[accounts.a]\nsecrets = ['hunter2']\nmay = []", 1, "account a: secrets[0]: needs at least 8 characters"),
        (
            b"[accounts.a]\nsecrets = [['hunter2-long']]\nmay = []",
            1,
            "account a: secrets[0]: expected str, got array",
        ),
        (b"[accounts.a]\nsecrets = 'hunter2", 1, "not TOML: Expected"),
        (b"\xff", 2, "not UTF-8"),
        (None, 2, "No such file or directory"),
    ],
)
def test_invalid_file_is_refused_with_the_reason(tmp_path: Path, text: bytes | None, code: int, problem: str) -> None:
    """The exit code is 1 for an invalid file and 2 for an unreadable one; no message contains a secret."""
    path = tmp_path / "access.toml"
    if text is not None:
        path.write_bytes(text)

    for words in (["check", str(path)], ["explain", "a", "105", "--file", str(path)]):
        done = run("access", *words)
        assert (done.code, done.out) == (code, "")
        assert done.problems[0].startswith(f"{path}: {problem}")
        assert "hunter2" not in done.err


@pytest.mark.parametrize(
    ("words", "code", "access_class", "why"),
    [
        ("reader 105", "GET_ROUTEINFO_BY_TOPIC", "route-read", {"rule 'route-read'"}),
        ("reader server-info", "SERVER_INFO", "any-account", {"every account may"}),
        ("broker 103 --cluster c1 --topic ab --from 10.1.2.3", "REGISTER_BROKER", "broker-control", {"rule '{}'"}),
        (
            "broker 103 --cluster c1",
            "REGISTER_BROKER",
            "broker-control",
            {"rule '{}'", "only for topics that fit; name some to ask about them"},
        ),
        (
            "broker register-broker",
            "REGISTER_BROKER",
            "broker-control",
            {"rule '{}'", "only for clusters and topics that fit; name some to ask about them"},
        ),
        ("operator PUT_KV_CONFIG", "PUT_KV_CONFIG", "admin-write", {"rule 'admin-write'", NATIVE_ONLY}),
        ("trusted PUT_KV_CONFIG", "PUT_KV_CONFIG", "admin-write", {"rule 'admin-write'"}),
    ],
)
def test_allowed_request_is_explained_by_its_rule(
    file: str, words: str, code: str, access_class: str, why: set[str]
) -> None:
    """The explanation names the granting rule and its conditions."""
    done = run("access", "explain", *words.split(), "--file", file)

    rule = "broker-control; clusters c1; topics a*"
    expected = {(code, access_class, "allowed", line.format(rule)) for line in why}
    assert (done.code, {tuple(row[1:]) for row in done.cells[1:]}) == (0, expected)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("reader 103", {"no rule grants broker-control"}),
        ("reader 9999", {"this code belongs to no access class and is always denied"}),
        ("former 105", {"the account expired on 2001-01-01 00:00:00+00:00"}),
        (
            "broker 103 --cluster c2 --topic ab --from 127.0.0.1",
            {
                "127.0.0.1 is in none of its networks: 10.0.0.0/8",
                "rule 'broker-control; clusters c1; topics a*' does not fit cluster c2",
            },
        ),
        ("broker 103 --cluster c1 --topic b", {"rule 'broker-control; clusters c1; topics a*' does not fit topic b"}),
        ("operator 319", {"rule 'admin-read; clusters c1' grants no request that names no clusters"}),
    ],
)
def test_denied_request_is_explained_by_every_reason(file: str, words: str, why: set[str]) -> None:
    """A denial exits with 1; NAMESRV_ACCESS may name the access file."""
    done = run("access", "explain", *words.split(), "-o", "json", env={"NAMESRV_ACCESS": file})

    assert (done.code, done.json["allowed"], set(done.json["why"])) == (1, False, why)


names = st.sampled_from(["a", "bx", "c"])
patterns = st.none() | st.lists(st.sampled_from(["a", "b*", "*"]), min_size=1, max_size=2).map(tuple).map(Patterns)


@given(
    st.lists(st.builds(Rule, st.sampled_from(GRANTABLE), patterns, patterns, patterns), max_size=3),
    st.builds(Permission, st.sampled_from([*REQUESTS, 9999]), names, names, names),
)
def test_verdict_equals_the_servers(rules: list[Rule], needed: Permission) -> None:
    """`explain` judges a request with every attribute as the server does."""
    account = Account("a", rules=tuple(rules))

    assert judge(account, needed, None, now=0.0).allowed == account.may(needed)


@pytest.mark.parametrize(
    "words", ["stranger 105", "reader NONSENSE", "reader 105 --from nowhere", "reader 105 --watch 2s", "reader"]
)
def test_wrong_usage_exits_with_2(file: str, words: str) -> None:
    """An unknown account or request code is wrong usage, not a denial."""
    done = run("access", "explain", *words.split(), "--file", file)

    assert (done.code, done.out) == (2, "")


@pytest.mark.parametrize("account", [None, "a.b", "O'Neill's \"x\" = y"])
def test_generated_key_parses_as_an_access_file(account: str | None) -> None:
    """The printed lines parse as an access file, and every key has a new secret."""
    words = ["access", "keygen", *([account] if account else [])]
    done, again = run(*words), run(*words, "-o", "json").json

    (made,) = parse_access_file("\n".join(done.lines).partition("# in the environment")[0]).accounts.values()
    words = [shlex.split(line)[0] for line in done.lines if line.startswith("NAMESRV_")]
    variables = dict(word.split("=", 1) for word in words)
    assert variables == {"NAMESRV_ACCESS_KEY": made.access_key, "NAMESRV_SECRET_KEY": made.secrets[0].decode()}
    assert account in (None, made.access_key)
    assert re.fullmatch("[0-9a-f]{48}", again["secret_key"])
    assert again["secret_key"] != made.secrets[0].decode()
