#!/bin/sh
# Checks docker/: scripts, Dockerfiles, systemd units and compose files; then builds the images, and runs them as four
# hosts and with compose.reach.yml. Needs root on Debian 12, and Go, but no container engine.
# The script installs missing tools with apt-get if it can. A tool that is still missing is a failure, unless
# DOCKER_CHECK_ALLOW_MISSING=1 is set, which skips the check.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
skipped=

clean_up() {
    code=$?
    trap - EXIT
    # An interrupted debootstrap leaves its mounts.
    for mounted in "$work/base/proc" "$work/base/sys"; do
        if mountpoint -q "$mounted"; then umount "$mounted" || code=1; fi
    done
    # --one-file-system, so that no mount that is left is deleted
    rm -rf --one-file-system "$work" || code=1
    exit "$code"
}

skip_or_fail() { # missing tools, the check
    if [ "${DOCKER_CHECK_ALLOW_MISSING-}" = 1 ]; then
        echo "docker-check: SKIPPED: $2 (missing: $1)" >&2
        skipped="$skipped, $2"
    else
        echo "docker-check: cannot check $2, missing: $1" >&2
        echo "docker-check: set DOCKER_CHECK_ALLOW_MISSING=1 to skip checks whose tools are missing" >&2
        exit 1
    fi
}

are_installed() { # commands
    for command in "$@"; do
        command -v "$command" >/dev/null 2>&1 || return 1
    done
}

is_root() {
    [ "$(id -u)" = 0 ]
}

install() { # packages
    if is_root && are_installed apt-get; then
        # A failure is only printed: the caller tests whether the commands are there.
        timeout 600 apt-get install --yes --no-install-recommends "$@" >"$work/apt.log" 2>&1 || tail -n 5 "$work/apt.log" >&2
    fi
}

check_compose() {
    if docker compose version >/dev/null 2>&1; then
        printf '#!/bin/sh\nexec docker compose "$@"\n' >"$work/compose"
        chmod 755 "$work/compose"
    elif are_installed go; then
        # Build the Compose plug-in, with the versions and hashes in compose/. The first build takes two minutes.
        (cd "$here/compose" && timeout 1200 go build -o "$work/compose" github.com/docker/compose/v2/cmd)
    else
        skip_or_fail "docker compose, and go to build it" "compose files"
        return
    fi
    timeout 60 "$work/compose" --file "$root/docker/compose.yml" --profile report config --quiet
    timeout 60 "$work/compose" --file "$root/docker/compose.yml" --file "$root/docker/compose.secured.yml" --profile '*' config --quiet
    timeout 60 "$work/compose" --file "$root/docker/compose.yml" --file "$root/docker/compose.reach.yml" config --quiet
    echo "docker compose config: no errors in compose.yml, alone, with compose.secured.yml and with compose.reach.yml"
}

check_dockerfiles() {
    sh "$root/locks/add.sh" docker
    "$root/.venv/bin/hadolint" "$root"/docker/*.Dockerfile
    echo "hadolint: no errors in the Dockerfiles"
}

check_scripts() {
    are_installed shellcheck || install shellcheck
    are_installed shellcheck || {
        skip_or_fail shellcheck scripts
        return
    }
    (cd "$root" && shellcheck -x docker/*.sh docker/check/*.sh deploy/debian/check.sh deploy/debian/*/p*)
    echo "shellcheck: no errors in the scripts"
}

check_units() {
    are_installed systemd-analyze systemd-sysusers systemd-tmpfiles || install systemd
    are_installed systemd-analyze systemd-sysusers systemd-tmpfiles || {
        skip_or_fail systemd "systemd units"
        return
    }
    sh "$here/systemd.sh" "$work"
}

check_images() {
    are_installed buildah debootstrap ip crun || install buildah debootstrap iproute2 crun
    if ! is_root || ! are_installed buildah debootstrap ip crun; then
        skip_or_fail "root, buildah, debootstrap, ip or crun" images
        return
    fi
    sh "$here/images.sh" "$work"
    sh "$here/hosts.sh" "$work"
    # Without Compose, check_compose are_installed skipped the compose files.
    if [ -x "$work/compose" ]; then sh "$here/reach.sh" "$work"; fi
}

work=$(mktemp -d "${TMPDIR:-/var/tmp}/namesrv-docker-check.XXXXXX")
# The images' user owns some of the files, and must be able to open the directory.
chmod 755 "$work"
trap clean_up EXIT
trap 'exit 130' INT TERM

check_scripts
check_dockerfiles
check_units
check_compose
check_images
if [ -n "$skipped" ]; then echo "docker-check: passed, skipped: ${skipped#, }" >&2; else echo "docker-check: passed"; fi
