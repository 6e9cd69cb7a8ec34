# shellcheck shell=sh
# buildah with its storage below $work, so that nothing of this machine's own is touched. To be sourced.
: "${work:?}"
# unpacked images are large, and there may be little room elsewhere
export TMPDIR="$work"

buildah_() {
    timeout 900 buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs "$@"
}
