#!/bin/sh
# Writes the locks from pyproject.toml, for every platform, with hashes.
# A version that still fits is kept; --upgrade takes the newest allowed ones.
set -eu
cd "$(dirname "$0")/.."

if command -v uv >/dev/null 2>&1; then
    uv=uv
else
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    "${PYTHON:-python3}" -m venv "$scratch"
    "$scratch/bin/python" -m pip --disable-pip-version-check --quiet install uv
    uv=$scratch/bin/uv
fi

compile() { # output, further options
    out=$1
    shift
    # no header, which would repeat the command line; no index URL, since each installation chooses its index
    "$uv" pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes \
        --no-header --no-emit-index-url --no-emit-find-links --annotation-style line "$@" --output-file "$out"
}

# run.txt has the same versions as dev.txt, so that `make test` does not change what `make run` installed
compile locks/dev.txt --extra server --extra ctl --extra console --extra spark --group dev "$@"
compile locks/run.txt --extra server --extra ctl --extra console --group build --constraints locks/dev.txt "$@"
# for the images of the report: without and with Spark
compile locks/report.txt --extra report --group build --constraints locks/dev.txt "$@"
compile locks/spark.txt --extra spark --group build --constraints locks/dev.txt "$@"
# packages beyond dev.txt for `make mutation`
compile locks/mutation.txt --group mutation --constraints locks/dev.txt "$@"
# for `make dist` and `make release-check`
compile locks/dist.txt --group dist --constraints locks/dev.txt "$@"
# for `make docker-check`
compile locks/docker.txt --group docker --constraints locks/dev.txt "$@"
# for `make fuzz-coverage`
compile locks/fuzz.txt --group fuzz --constraints locks/dev.txt "$@"
# for `make docs`
compile locks/docs.txt --group docs --constraints locks/dev.txt "$@"
