"""docs/operating.md agrees with the settings and metrics."""

import re
from pathlib import Path

from namesrv.settings.model import Settings
from tests.docs.generated import OPERATING, with_settings
from tests.support.certificates import Authority
from tests.support.daemon import Daemon
from tests.support.http_peer import ask


def test_settings_table_is_current() -> None:
    """Names, defaults, ranges and meanings are those declared in the code."""
    page = OPERATING.read_text()
    assert with_settings(page) == page, "python -m tests.docs.generated writes it anew"


def test_documented_metrics_exist(tmp_path: Path) -> None:
    """A server without any request shows every metric named on the page."""
    named = set(re.findall(r"`(nameserver_\w+)", OPERATING.read_text())) - set(Settings.model_fields)
    ca = Authority(tmp_path)
    issued = ca.issue("server")
    tls = (
        *(f"--tls-cert-file={issued.cert_file}", f"--tls-key-file={issued.key_file}", "--tls-mode=permissive"),
        *(f"--tls-ca-file={ca.ca_file}", f"--tls-crl-file={ca.revocation_list()}", "--tls-client-auth=optional"),
    )
    with Daemon(tmp_path / "data", "--http-listen=127.0.0.1:0", "--quotas=observe", *tls) as daemon:
        host, _, port = daemon.wait_for("listening")["http"][0].rpartition(":")
        text = ask((host, int(port)), "/metrics").text

    shown = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE)) | set(re.findall(r"^(\w+)[{ ]", text, re.MULTILINE))
    assert len(named) > 10
    assert set() == named - shown
