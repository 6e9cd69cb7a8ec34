#!/bin/sh
# Installs the packages of locks/$1.txt into .venv, for a rarely used target; quick if they are installed.
set -eu
cd "$(dirname "$0")/.."
# two tests may run this script at the same moment
if command -v flock >/dev/null 2>&1; then
    exec 9>.venv.lock
    flock 9
fi
lock=locks/$1.txt
stamp=.venv/stamp-$1
state="$(cksum <"$lock") $(cat .venv/stamp-dev 2>/dev/null)"
if [ "$(cat "$stamp" 2>/dev/null)" != "$state" ]; then
    echo "namesrv: installing the packages of $lock into .venv; only now and when that file changes" >&2
    .venv/bin/python -m pip --disable-pip-version-check --quiet install --no-deps --require-hashes --requirement "$lock"
    echo "$state" >"$stamp"
fi
