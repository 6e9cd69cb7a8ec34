#!/bin/sh
# Builds the documentation as a site, see mkdocs.yml; with `serve`, or any other command of MkDocs, runs that instead.
set -eu
cd "$(dirname "$0")/.."
lock=locks/docs.txt
stamp=.venv/stamp-docs
if [ "$(cat "$stamp" 2>/dev/null)" != "$(cksum <"$lock")" ]; then
    echo "namesrv: installing what $lock names into .venv; only now and when that file changes" >&2
    .venv/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes --requirement "$lock"
    cksum <"$lock" >"$stamp"
fi
# what it would say is about a version of MkDocs that the lock does not name
export NO_MKDOCS_2_WARNING=1
exec .venv/bin/python -m mkdocs "${@:-build}"
