#!/bin/sh
# Installs Chromium from Debian's packages for the browser tests of report and console, unless it is already installed.
# Without Chromium the tests are skipped. The Chinese font is for screenshots of the console.
set -eu

if command -v chromium >/dev/null 2>&1 && command -v chromedriver >/dev/null 2>&1; then
    exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "setup_browser: chromium and chromedriver not found, and no root or apt-get to install them: browser tests will be skipped" >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q || true
apt-get install -q -y --no-install-recommends chromium chromium-driver fonts-wqy-microhei ||
    echo "setup_browser: cannot install chromium: browser tests will be skipped" >&2
