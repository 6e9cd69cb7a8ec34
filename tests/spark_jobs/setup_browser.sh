#!/bin/sh
# Gets the Chromium in which the tests open the report: Debian's own, where it is missing and may be installed.
# A Chinese font is for pictures of the console only.
# Without it those tests are skipped and say so.
set -eu

if command -v chromium >/dev/null 2>&1 && command -v chromedriver >/dev/null 2>&1; then
    exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "setup_browser: no chromium and chromedriver here, and they cannot be installed: the tests of the report's page will be skipped" >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q || true
apt-get install -q -y --no-install-recommends chromium chromium-driver fonts-wqy-microhei ||
    echo "setup_browser: chromium could not be installed: the tests of the report's page will be skipped" >&2
