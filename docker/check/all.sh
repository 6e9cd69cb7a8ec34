#!/bin/sh
# Everything that is checked of docker/: compose.yml, Dockerfiles, systemd units, and the images themselves, built, run
# as four hosts and by compose.reach.yml. Needs root on Debian 12, Go, and no engine; what Debian has is installed.
# A check whose tool is missing is a failure, unless DOCKER_CHECK_ALLOW_MISSING=1 is set.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
left_out=

# one file system only: nothing that is mounted below is ever reached
clean_up() {
    code=$?
    trap - EXIT
    # debootstrap, when interrupted, leaves these behind
    for mounted in "$work/base/proc" "$work/base/sys"; do
        if mountpoint -q "$mounted"; then umount "$mounted" || code=1; fi
    done
    rm -rf --one-file-system "$work" || code=1
    exit "$code"
}

missing() { # what, why it is needed
    if [ "${DOCKER_CHECK_ALLOW_MISSING-}" = 1 ]; then
        echo "LEFT OUT: $2 ($1 is missing)" >&2
        left_out="$left_out, $2"
    else
        echo "docker-check: $1 is missing, so this cannot be checked: $2" >&2
        echo "docker-check: DOCKER_CHECK_ALLOW_MISSING=1 leaves it out" >&2
        exit 1
    fi
}

has() { # commands
    for command in "$@"; do
        command -v "$command" >/dev/null 2>&1 || return 1
    done
}

is_root() {
    [ "$(id -u)" = 0 ]
}

install() { # packages
    if is_root && has apt-get; then
        # the check of what is needed comes afterwards
        timeout 600 apt-get install --yes --no-install-recommends "$@" >"$work/apt.log" 2>&1 || tail -n 5 "$work/apt.log" >&2
    fi
}

check_compose() {
    if docker compose version >/dev/null 2>&1; then
        printf '#!/bin/sh\nexec docker compose "$@"\n' >"$work/compose"
        chmod 755 "$work/compose"
    elif has go; then
        # the plug-in itself, by the versions and hashes in compose/; two minutes when nothing of it was fetched before
        (cd "$here/compose" && timeout 1200 go build -o "$work/compose" github.com/docker/compose/v2/cmd)
    else
        missing "docker compose, or go to build it," "compose.yml"
        return
    fi
    timeout 60 "$work/compose" --file "$root/docker/compose.yml" --profile report config --quiet
    timeout 60 "$work/compose" --file "$root/docker/compose.yml" --file "$root/docker/compose.secured.yml" --profile '*' config --quiet
    timeout 60 "$work/compose" --file "$root/docker/compose.yml" --file "$root/docker/compose.reach.yml" config --quiet
    echo "compose.yml, alone, secured and reachable from outside: docker compose config has nothing against it"
}

check_dockerfiles() {
    sh "$root/locks/add.sh" docker
    "$root/.venv/bin/hadolint" "$root"/docker/*.Dockerfile
    echo "Dockerfiles: hadolint has nothing against them"
}

check_scripts() {
    has shellcheck || install shellcheck
    has shellcheck || {
        missing shellcheck "scripts by shellcheck"
        return
    }
    (cd "$root" && shellcheck -x docker/*.sh docker/check/*.sh deploy/debian/check.sh deploy/debian/*/p*)
    echo "scripts: shellcheck has nothing against them"
}

check_units() {
    has systemd-analyze systemd-sysusers systemd-tmpfiles || install systemd
    has systemd-analyze systemd-sysusers systemd-tmpfiles || {
        missing systemd "systemd units"
        return
    }
    sh "$here/systemd.sh" "$work"
}

check_images() {
    has buildah debootstrap ip crun || install buildah debootstrap iproute2 crun
    if ! is_root || ! has buildah debootstrap ip crun; then
        missing "root, buildah, debootstrap, ip or crun" "images, built and run as four hosts"
        return
    fi
    sh "$here/images.sh" "$work"
    sh "$here/hosts.sh" "$work"
    # otherwise compose.yml has been left out
    if [ -x "$work/compose" ]; then sh "$here/reach.sh" "$work"; fi
}

work=$(mktemp -d "${TMPDIR:-/var/tmp}/namesrv-docker-check.XXXXXX")
# its files belong to the user of the images, too, who has to get there
chmod 755 "$work"
trap clean_up EXIT
trap 'exit 130' INT TERM

check_scripts
check_dockerfiles
check_units
check_compose
check_images
if [ -n "$left_out" ]; then echo "docker-check: well, but left out: ${left_out#, }" >&2; else echo "docker-check: all well"; fi
