#!/bin/sh
# Builds the images of docker/ for real, without an engine: buildah in a chroot, on a base that debootstrap makes.
# Usage: images.sh WORK_DIR. Leaves localhost/namesrv and localhost/namesrv-broker-agent in WORK_DIR/storage.
set -eu
work=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
base=localhost/base:check

# shellcheck source=docker/check/buildah.sh
. "$root/docker/check/buildah.sh"
# shellcheck source=docker/check/debian.sh
. "$root/docker/check/debian.sh"

make_base() {
    [ -n "${DOCKER_CHECK_BASE-}" ] || debian "$work/base" python3,python3-venv
    from=$(buildah_ from scratch)
    buildah_ add --quiet "$from" "${DOCKER_CHECK_BASE:-$work/base}" / >/dev/null
    buildah_ commit --quiet --rm "$from" "$base" >/dev/null
    rm -rf --one-file-system "$work/base"
}

# The build is without a network of its own trust: wheels are fetched here, with this machine's settings, and the
# build checks their hashes again.
fetch_wheels() {
    timeout 300 "$root/.venv/bin/python" -m pip --quiet download --require-hashes --only-binary :all: --python-version 3.11 \
        --requirement "$root/locks/run.txt" --dest "$work/wheelhouse"
    printf '[global]\nno-index = true\nfind-links = /wheelhouse\n' >"$work/pip.conf"
}

build() { # image
    buildah_ build \
        --isolation chroot --format docker --quiet --network host \
        --volume "$work/wheelhouse:/wheelhouse:ro" --volume "$work/pip.conf:/etc/pip.conf:ro" \
        --build-arg BASE_IMAGE="$base" --file "$root/docker/$1.Dockerfile" --tag "localhost/$1:check" "$root" \
        >"$work/build-$1.log" 2>&1 || {
        tail -n 40 "$work/build-$1.log" >&2
        return 1
    }
    echo "built $1"
}

make_base
fetch_wheels
build namesrv
build broker-agent
