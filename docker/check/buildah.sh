# shellcheck shell=sh
# Functions to source: buildah with its storage in $work, apart from the storage of this machine.
: "${work:?}"
# Unpacked images are large, and /tmp may be small.
export TMPDIR="$work"

buildah_() {
    timeout 900 buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs "$@"
}
