#!/bin/sh
# Installs the packages of locks/$1.txt ($1: run or dev) and this tree into .venv; quick if that was done before.
set -eu
cd "$(dirname "$0")/.."
kind=$1
lock=locks/$kind.txt
venv=.venv

say() {
    echo "namesrv: $*" >&2
}

fail() {
    say "$@"
    exit 1
}

# The stamp of a finished installation. It has the file's contents instead of its time, so that touching the file changes
# nothing; and folder and Python, because a copied .venv imports the old tree and an upgraded Python has no packages.
state_of() {
    echo "$(cksum <"$1") $(pwd -P) $("$venv/bin/python" --version 2>&1)"
}

# True if the venv has the Python that PYTHON names, or if PYTHON is not set.
is_wanted() {
    [ -z "${PYTHON:-}" ] || [ "$(version_of "$PYTHON")" = "$(version_of "$venv/bin/python")" ]
}

version_of() {
    "$1" -c 'import sys; print(sys.base_prefix, sys.version)' 2>/dev/null
}

is_current() { # stamp, file
    is_wanted && [ -f "$venv/$1" ] && [ -x "$venv/bin/namesrv" ] && "$venv/bin/python" --version >/dev/null 2>&1 &&
        [ "$(cat "$venv/$1")" = "$(state_of "$2")" ]
}

find_python() {
    for python in ${PYTHON:-python3 python3.11 python3.12 python3.13 python3.14}; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            "$python" -c 'import sys; print(sys.executable)'
            return
        fi
    done
    fail "Python 3.11 or newer is needed, and none of these is: ${PYTHON:-python3 python3.11 python3.12 python3.13 python3.14}"
}

make_venv() {
    python=$(find_python)
    "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 ||
        fail "$python lacks the modules venv and ensurepip (Debian and Ubuntu: apt install python3-venv)"
    say "creating $venv with $("$python" --version)"
    "$python" -m venv --clear "$venv"
}

pip() {
    "$venv/bin/python" -m pip --disable-pip-version-check --quiet "$@"
}

# `make run` and `make test` may be started at the same moment in two terminals
if command -v flock >/dev/null 2>&1; then
    exec 9>.venv.lock
    flock 9
fi

if ! is_current "stamp-$kind" "$lock"; then
    rm -f "$venv/stamp-$kind"
    # make the venv anew if it does not start, was copied from another folder, or has another Python
    if ! is_wanted || ! "$venv/bin/python" -c 'import pip' >/dev/null 2>&1 || [ "$(cat "$venv/home" 2>/dev/null)" != "$(pwd -P)" ]; then
        make_venv
        pwd -P >"$venv/home"
    fi
    say "installing $(grep -c '^[A-Za-z0-9]' "$lock") packages from $lock into $venv; only now and when that file changes"
    # The lock names every package. With --no-deps, pip does not look for versions of its own: pip 23.2 takes the newest
    # coverage for the extra in `coverage[toml]`, and then refuses that version because the lock has no hash of it.
    pip install --no-deps --require-hashes --requirement "$lock"
    say "installing this tree"
    pip install --no-deps --no-build-isolation --editable .
    state_of pyproject.toml >"$venv/stamp-project"
    state_of "$lock" >"$venv/stamp-$kind"
    if [ "$kind" = dev ]; then
        # dev.txt contains run.txt in the same versions
        state_of locks/run.txt >"$venv/stamp-run"
    fi
fi

# After a change of pyproject.toml (entry points, version) register this tree anew, without downloads.
if ! is_current stamp-project pyproject.toml; then
    pip install --no-deps --no-build-isolation --editable .
    state_of pyproject.toml >"$venv/stamp-project"
fi
