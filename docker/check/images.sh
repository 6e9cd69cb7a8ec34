#!/bin/sh
# Builds the images of docker/ with buildah in a chroot, on a base image that debootstrap makes, and checks them.
# Usage: images.sh WORK_DIR. The images stay in WORK_DIR/storage, as localhost/namesrv:check and so on.
set -eu
work=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
base=localhost/base:check
with_spark=${DOCKER_CHECK_SPARK-}

# shellcheck source=docker/check/buildah.sh
. "$root/docker/check/buildah.sh"
# shellcheck source=docker/check/debian.sh
. "$root/docker/check/debian.sh"

# A base image without the files that Debian's bookworm-slim lacks, so that the measured sizes are realistic.
make_base() {
    base_dir=${DOCKER_CHECK_BASE-}
    if [ -z "$base_dir" ]; then
        base_dir=$work/base
        make_debian "$base_dir" python3,python3-venv
        rm -rf "$base_dir"/var/cache/apt/* "$base_dir"/var/lib/apt/lists/* "$base_dir"/usr/share/doc/* \
            "$base_dir"/usr/share/man/* "$base_dir"/usr/share/locale/* "$base_dir"/usr/share/info/*
        # Remove the bytecode, which the base image of the Dockerfiles lacks, too.
        find "$base_dir/usr/lib" -name __pycache__ -prune -exec rm -rf {} +
    fi
    from=$(buildah_ from scratch)
    buildah_ add --quiet "$from" "$base_dir" / >/dev/null
    buildah_ commit --quiet --rm "$from" "$base" >/dev/null
    rm -rf --one-file-system "$work/base"
}

# Downloads the wheels with this machine's settings of pip (index, proxy, CA), which a build lacks. The build checks the
# hashes again.
fetch_wheels() {
    for lock in run report; do
        timeout 300 "$root/.venv/bin/python" -m pip --quiet download --no-deps --require-hashes --only-binary :all: \
            --python-version 3.11 --requirement "$root/locks/$lock.txt" --dest "$work/wheelhouse"
    done
    if [ "$with_spark" = 1 ]; then
        # 400 MB. PySpark is published as source, which setuptools builds.
        timeout 600 "$root/.venv/bin/python" -m pip --quiet download --require-hashes --no-deps --only-binary :all: \
            --no-binary pyspark --python-version 3.11 --requirement "$root/locks/spark.txt" --dest "$work/wheelhouse"
        timeout 60 "$root/.venv/bin/python" -m pip --quiet download --no-deps setuptools wheel --dest "$work/wheelhouse"
    fi
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

megabytes() { # file or directory
    du --summarize --block-size 1 --apparent-size "$1" | awk '{ printf "%d", ($1 + 999999) / 1000000 }'
}

# Prints the size of an image, compressed as in a registry and unpacked, and fails above a limit. The sizes include the
# base image made above, which is about as large as the one that the Dockerfiles name.
check_size() { # image, limit in megabytes, compressed
    buildah_ push --quiet "localhost/$1:check" "oci:$work/pushed-$1" >/dev/null
    container=$(buildah_ from --pull-never "localhost/$1:check")
    compressed=$(megabytes "$work/pushed-$1")
    echo "$1: $compressed MB compressed, $(megabytes "$(buildah_ mount "$container")") MB unpacked"
    buildah_ rm "$container" >/dev/null
    rm -rf "$work/pushed-$1"
    [ "$compressed" -lt "$2" ] || {
        echo "images.sh: $1 has $compressed MB compressed, limit $2" >&2
        return 1
    }
}

# Checks that the programs of the image start, and that its bill of materials has all kinds of components.
check_content() { # image, command...
    image=$1
    shift
    container=$(buildah_ from --pull-never "localhost/$image:check")
    for command in "$@"; do
        buildah_ run --isolation chroot "$container" -- sh -c "$command --help" >"$work/help.log" 2>&1 || {
            cat "$work/help.log" >&2
            return 1
        }
    done
    modules=$(find "$(buildah_ mount "$container")/usr/lib/python3.11" -maxdepth 3 -path '*/__pycache__/ssl.*.pyc')
    [ -n "$modules" ] || {
        echo "images.sh: $image has no bytecode of the standard library" >&2
        return 1
    }
    "$root/.venv/bin/python" -c '
import json, sys
kinds = {component["purl"].split("/")[0] for component in json.load(open(sys.argv[1]))["components"]}
assert kinds == {"pkg:pypi", "pkg:generic", "pkg:deb"}, kinds
' "$(buildah_ mount "$container")/opt/namesrv/sbom.cdx.json"
    buildah_ rm "$container" >/dev/null
}

make_base
fetch_wheels
for image in namesrv broker-agent console report; do
    build "$image"
done
check_size namesrv 80
check_size broker-agent 80
# 56 MB are DuckDB and the program that draws charts.
check_size console 135
check_size report 120
check_content namesrv namesrv namesrvctl
check_content broker-agent namesrv-broker-agent "python /opt/namesrv/examples/memory_broker.py"
# compose.secured.yml makes its certificates with the library cryptography of this image.
check_content console namesrv-console namesrv-staleness "python -c 'import cryptography.x509'"
check_content report namesrv-staleness
if [ "$with_spark" = 1 ]; then
    build spark
    check_content spark namesrv-staleness java
fi
