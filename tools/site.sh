#!/bin/sh
# Builds the documentation as a site, see mkdocs.yml; with `serve`, or any other command of MkDocs, runs that instead.
set -eu
cd "$(dirname "$0")/.."
sh locks/add.sh docs
# what it would say is about a version of MkDocs that the lock does not name
export NO_MKDOCS_2_WARNING=1
exec .venv/bin/python -m mkdocs "${@:-build}"
