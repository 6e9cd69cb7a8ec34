"""Sources of settings: their precedence, and the messages of refusals."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv.settings import sources
from namesrv.settings.catalog import SETTINGS, Setting
from namesrv.settings.flags import parse
from namesrv.settings.model import Settings
from namesrv.settings.sources import Loaded, SettingsError, config_table

HOME = {"HOME": "/home/mq"}


def load(argv: list[str], environ: dict[str, str] | None = None) -> Loaded:
    """The settings of these arguments, for a user with a home."""
    return sources.load(parse(argv), HOME | (environ or {}))


def problems(argv: list[str], environ: dict[str, str] | None = None) -> list[str]:
    """The problems of these arguments."""
    with pytest.raises(SettingsError) as caught:
        load(argv, environ)
    return list(caught.value.problems)


@pytest.fixture
def toml_file(tmp_path: Path) -> Path:
    """A TOML file with port 3333."""
    path = tmp_path / "namesrv.toml"
    path.write_text("listen_port = 3333\n")
    return path


@pytest.fixture
def properties_file(tmp_path: Path) -> Path:
    """A properties file with port 4444."""
    path = tmp_path / "namesrv.properties"
    path.write_text("listenPort=4444\n")
    return path


def port(loaded: Loaded) -> tuple[int, str]:
    """The port and its origin."""
    return loaded.settings.listen_port, loaded.origins["listen_port"]


def test_precedence(toml_file: Path, properties_file: Path) -> None:
    """Each setting comes from the flag, environment, TOML, properties or default, in this order of precedence."""
    properties_file.write_text("listenPort=4444\nbindAddress=::1\n")
    flag, environ = ["--listen-port", "1111"], {"NAMESRV_LISTEN_PORT": "2222"}
    toml, properties = ["--config", str(toml_file)], ["-c", str(properties_file)]

    assert port(load([*flag, *properties, *toml], environ)) == (1111, "flag --listen-port")
    assert port(load([*properties, *toml], environ)) == (2222, "environment NAMESRV_LISTEN_PORT")
    assert port(load([*toml, *properties])) == (3333, f"file {toml_file}")
    assert port(load(properties)) == (4444, f"file {properties_file}, listenPort")
    assert port(load([])) == (9876, "default")
    # precedence holds for each setting on its own
    assert load([*flag, *properties, *toml], environ).settings.listen_host == "::1"
    # only effective values are checked, so a flag overrides a wrong file
    toml_file.write_text("listen_port = 99999\n")
    assert port(load([*toml, *flag])) == (1111, "flag --listen-port")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--evict-on-disconnect"], True),
        (["--no-evict-on-disconnect"], False),
        (["--evict-on-disconnect=false"], False),
        (["--evict-on-disconnect=true"], True),
        (["--evict-on-disconnect", "false"], False),
        (["--no-evict-on-disconnect", "--evict-on-disconnect"], True),
    ],
)
def test_switches(argv: list[str], expected: bool) -> None:
    """A switch can be set, negated, or given a value; the last one counts."""
    assert load(argv).settings.evict_on_disconnect == expected


@pytest.mark.parametrize(
    ("argv", "environ", "problem"),
    [
        (["--listen-port=70000"], {}, "listen-port: 70000 is not between 0 and 65535 (from flag --listen-port)"),
        (["--listen-port", "-1"], {}, "listen-port: -1 is not between 0 and 65535 (from flag --listen-port)"),
        (["--listen-port", "http"], {}, "listen-port: http is not a whole number (from flag --listen-port)"),
        (["--listen-port", "1.5"], {}, "listen-port: 1.5 is not a whole number (from flag --listen-port)"),
        (["--listen-port="], {}, 'listen-port: "" is empty (from flag --listen-port)'),
        (["--listen-port"], {}, "flag --listen-port needs a value"),
        (["-c"], {}, "flag -c/--properties needs a value"),
        (["--drain-seconds=x"], {}, "drain-seconds: x is not a number (from flag --drain-seconds)"),
        (["--drain-seconds=nan"], {}, "drain-seconds: nan is not between 0 and 600 (from flag --drain-seconds)"),
        (
            ["--enable-topic-list=maybe"],
            {},
            "enable-topic-list: maybe is not true or false (from flag --enable-topic-list)",
        ),
        (["--no-enable-topic-list=1"], {}, "flag --no-enable-topic-list takes no value"),
        (["--log-format=xml"], {}, "log-format: xml is not one of auto, text, json (from flag --log-format)"),
        (
            ["--listen-host=a b"],
            {},
            'listen-host: "a b" is not a valid address or host name (separate several with commas)',
        ),
        (
            ["--data-dir=/d", "--audit-log-dir=/d/logs", "--heartbeat-log-dir=logs"],
            {},
            "audit-log-dir and heartbeat-log-dir are both /d/logs: each log needs a directory of its own",
        ),
        (["--listn-port", "1"], {}, "unknown flag --listn-port (did you mean --listen-port?)"),
        (["--listen-por=1"], {}, "unknown flag --listen-por (did you mean --listen-port?)"),
        (["--no-listen-port"], {}, "unknown flag --no-listen-port (did you mean --listen-port?)"),
        (["-n"], {}, "unknown flag -n"),
        (["--\x1b[2J"], {}, 'unknown flag "--\\x1b[2J"'),
        (["start"], {}, "unexpected argument start"),
        (
            [],
            {"NAMESRV_LISTEN_PORT": "70000"},
            "listen-port: 70000 is not between 0 and 65535 (from environment NAMESRV_LISTEN_PORT)",
        ),
        ([], {"NAMESRV_LOG_LEVEL": ""}, 'log-level: "" is empty (from environment NAMESRV_LOG_LEVEL)'),
        (
            [],
            {"NAMESRV_LISTN_PORT": "1"},
            "unknown environment variable NAMESRV_LISTN_PORT (did you mean NAMESRV_LISTEN_PORT?)",
        ),
        ([], {"NAMESRV_PORT": "9876"}, "unknown environment variable NAMESRV_PORT"),
        ([], {"NAMESRV_": ""}, "unknown environment variable NAMESRV_"),
    ],
)
def test_wrong_flags_and_variables_are_refused(argv: list[str], environ: dict[str, str], problem: str) -> None:
    """A problem is one line with the setting, the value and its origin."""
    found = problems(argv, environ)

    assert len(found) == 1
    assert found[0].startswith(problem)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("listn_port = 1", "unknown key listn_port in {file} (did you mean listen_port?)"),
        ("listen-port = 1", "unknown key listen-port in {file} (did you mean listen_port?)"),
        ("[server]\nlisten_port = 1", "unknown key server in {file}"),
        ("listen_port = true", "listen-port: true is not a number (from file {file})"),
        ("listen_port = [1]", "listen-port: [1] is not a whole number (from file {file})"),
        ("listen_port = 65536", "listen-port: 65536 is not between 0 and 65535 (from file {file})"),
        ("enable_topic_list = 2", "enable-topic-list: 2 is not true or false (from file {file})"),
        ("log_level = 1", "log-level: 1 is not one of debug, info, warning, error (from file {file})"),
        ("listen_host = 1", "listen-host: 1 is not text (from file {file})"),
        ("data_dir = 1", "data-dir: 1 is not a path (from file {file})"),
        ('data_dir = "a\\u0000b"', 'data-dir: "a\\x00b" is not a path (from file {file})'),
        ("listen_port = ", "{file}: not TOML: Invalid value"),
        ("listen_port = 1\nlisten_port = 2", "{file}: key listen_port is given twice, last in line 2"),
        ("listen_port = 1\nlisten_port = 2\n\n", "{file}: key listen_port is given twice, last in line 2"),
        ("a.b = 1\n[a]\nb = 2", "{file}: not TOML: Cannot "),
    ],
)
def test_wrong_toml_is_refused(toml_file: Path, text: str, problem: str) -> None:
    """Unknown keys, wrong types and malformed syntax are refused with the name of the file."""
    toml_file.write_text(text)

    (found,) = problems(["--config", str(toml_file)])
    assert found.startswith(problem.replace("{file}", str(toml_file)))


def test_toml_beyond_the_limits_of_python(toml_file: Path) -> None:
    """Deep nesting and huge integers are refused like any malformed file."""
    toml_file.write_text("a = " + "[" * 100_000)
    assert problems(["--config", str(toml_file)])[0].startswith(f"{toml_file}: not TOML: maximum recursion depth")

    for number in ("1" * 5000, "0x" + "f" * 5000):
        toml_file.write_text(f"listen_port = {number}")
        assert problems(["--config", str(toml_file)])[0].startswith(f"{toml_file}: not TOML: Exceeds the limit")


@pytest.mark.parametrize("flag", ["--config", "-c"])
def test_unreadable_files_are_refused(tmp_path: Path, flag: str) -> None:
    """A missing file, a directory and a file that is not UTF-8 each have a message."""
    missing, latin = tmp_path / "missing", tmp_path / "latin"
    latin.write_bytes(b"# caf\xe9\n")

    assert problems([flag, str(missing)]) == [f"{missing}: cannot be read: no such file or directory"]
    assert problems([flag, str(tmp_path)]) == [f"{tmp_path}: cannot be read: is a directory"]
    assert problems([flag, str(latin)]) == [f"{latin}: is not UTF-8 at byte 5"]


def test_all_problems_are_reported_at_once(toml_file: Path) -> None:
    """The problems of all sources are reported by one start."""
    toml_file.write_text("nonsense = 1\nlisten_port = 'x'\n")

    assert problems(["--unknown", "--config", str(toml_file), "--drain-seconds=601"], {"NAMESRV_UNKNOWN": "1"}) == [
        "unknown flag --unknown",
        "unknown environment variable NAMESRV_UNKNOWN",
        f"unknown key nonsense in {toml_file}",
        f"listen-port: x is not a whole number (from file {toml_file})",
        "drain-seconds: 601 is not between 0 and 600 (from flag --drain-seconds)",
    ]


def test_foreign_variables_are_ignored() -> None:
    """Variables of clients, and those of Kubernetes for a service named namesrv, are ignored."""
    ports = dict.fromkeys(("PORT", "PORT_9876_TCP", "0_PORT"), "tcp://10.0.0.1:9876")
    ports |= {"PORT_9876_TCP_PROTO": "tcp", "PORT_9876_TCP_PORT": "9876", "PORT_9876_TCP_ADDR": "10.0.0.1"}
    service = {"SERVICE_HOST": "10.0.0.1", "SERVICE_PORT": "9876", "SERVICE_PORT_REMOTING": "9876"}
    service |= {"0_SERVICE_HOST": "10.0.0.1", "ADDR": "10.0.0.1:9876;10.0.0.2:9876"}
    service |= {"ACCESS_KEY": "agent", "SECRET_KEY": "s", "SECRET_KEY_FILE": "f"}
    service |= {"TLS": "true", "TLS_VERIFY_HOST": "false"}
    others = {"NAMESRVX": "1", "PATH": "/bin"}

    loaded = load([], {f"NAMESRV_{name}": value for name, value in (ports | service).items()} | others)

    assert (loaded.origins, loaded.warnings) == (dict.fromkeys(SETTINGS, "default"), ())
    assert loaded.settings.data_dir == Path("/home/mq/.local/state/namesrv")


@pytest.mark.parametrize(
    ("flag", "warnings"),
    [
        ("--broker-expiry-seconds=30", []),
        ("--broker-expiry-seconds=29.5", ["broker-expiry-seconds 29.5 is less than the 30 s between two heartbeats"]),
    ],
)
def test_doubtful_settings_have_a_warning(flag: str, warnings: list[str]) -> None:
    """An allowed but unusual combination of settings has a warning."""
    assert [warning.partition(":")[0] for warning in load([flag]).warnings] == warnings


def test_printed_configuration_can_be_loaded(tmp_path: Path) -> None:
    """The output of --print-config is valid for --config, with any characters in paths."""
    loaded = load(["--data-dir", '/tmp/a "b" \\ \x7f \x1b\n#é', "--listen-host=::,0.0.0.0"])

    table = config_table(loaded)
    assert list(SETTINGS) == [line.split()[0] for line in table.splitlines()]
    assert loaded.settings == Settings(**tomllib.loads(table))


def problems_or_none(argv: list[str], environ: dict[str, str]) -> tuple[str, ...]:
    """The problems of these sources, perhaps none."""
    try:
        load(argv, environ)
    except SettingsError as error:
        return error.problems
    return ()


WORDS = st.sampled_from(
    [flag for setting in SETTINGS.values() for flag in setting.flags[:1]] + ["-c", "-p", "--", "-", "=", "1", "--no-"]
)


@given(st.lists(WORDS | st.text(st.characters(exclude_characters="\0"))))
def test_any_arguments_are_read_or_refused(argv: list[str]) -> None:
    """Any arguments give settings or problems, each of one printable line, and never a traceback."""
    assert all(problem.isprintable() for problem in problems_or_none(argv, {}))


@given(st.sampled_from(list(SETTINGS.values())), st.text())
def test_any_value_is_read_or_refused(setting: Setting, value: str) -> None:
    """Any value gives a setting or problems, each of one printable line, and never a traceback."""
    assert all(problem.isprintable() for problem in problems_or_none([], {setting.environment: value}))


@pytest.mark.parametrize("name", ["access", "address_views"])
def test_settings_without_the_contents_of_their_files_are_refused(name: str) -> None:
    """A server without the accounts of its access file would allow everything."""
    with pytest.raises(ValueError, match="cannot run without"):
        Loaded(Settings.model_validate({name: "file.toml"}))
