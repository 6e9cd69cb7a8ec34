#!/bin/sh
# Builds the documentation site of mkdocs.yml. Arguments, such as `serve`, are passed to MkDocs instead of `build`.
set -eu
cd "$(dirname "$0")/.."
sh locks/add.sh docs
# The warning is about MkDocs 2, and the lock has MkDocs 1.
export NO_MKDOCS_2_WARNING=1
exec .venv/bin/python -m mkdocs "${@:-build}"
