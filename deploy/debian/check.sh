#!/bin/sh
# Boots a fresh Debian 12 with systemd-nspawn, installs the Debian packages there, and checks that they serve, report,
# upgrade with changed settings, and leave nothing behind when removed and purged.
# Usage: check.sh [NAMESRV-PACKAGE STALENESS-PACKAGE]; without arguments the script builds the packages first.
# Needs root, and installs missing tools with apt-get. DEB_CHECK_BASE=DIR copies a Debian 12 with python3, procps and
# systemd from DIR instead of making one with debootstrap.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/var/tmp}/namesrv-deb-check.XXXXXX")
top=$work/root
container=

clean_up() {
    code=$?
    trap - EXIT
    if [ -n "$container" ]; then
        kill "$container" 2>/dev/null || true
        wait "$container" 2>/dev/null || true
    fi
    rm -rf --one-file-system "$work" || code=1
    exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# shellcheck source=docker/check/debian.sh
. "$root/docker/check/debian.sh"

fail() {
    echo "deb-check: $*" >&2
    [ ! -d "$top/var/log" ] || inside journalctl --no-pager --lines 30 --unit 'namesrv*' >&2 || true
    exit 1
}

require_tools() {
    [ "$(id -u)" = 0 ] || fail "must run as root, to boot a container"
    for command in debootstrap systemd-nspawn lintian man; do
        command -v "$command" >/dev/null || set -- "$@" "$command"
    done
    [ $# = 0 ] || timeout 600 apt-get install --yes --no-install-recommends debootstrap systemd-container lintian man-db \
        >"$work/apt.log" 2>&1 || fail "cannot install $*: $(tail -n 3 "$work/apt.log")"
}

make_root() {
    if [ -n "${DEB_CHECK_BASE-}" ]; then cp -a "$DEB_CHECK_BASE" "$top"; else make_debian "$top" python3,procps,systemd-sysv; fi
}

check_files() { # package
    # The maintainer may have a local address, since each user builds the packages.
    lintian --allow-root --fail-on error,warning --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog,root-in-contact "$1" ||
        fail "lintian reports problems of $1"
    dpkg-deb --fsys-tarfile "$1" | tar --extract --directory "$work" ./usr/share/man
    for page in "$work"/usr/share/man/man*/*; do
        warnings=$(LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings --encoding UTF-8 --local-file "$page" 2>&1 >/dev/null)
        [ -z "$warnings" ] || fail "$page: $warnings"
    done
    echo "lintian and man: no problems in $(basename "$1")"
}

# Builds a copy of the package with a higher version and a changed settings file.
make_next_version() { # package, version
    rm -rf "$work/next"
    dpkg-deb --raw-extract "$1" "$work/next"
    sed -i "s/^Version: .*/Version: $2/" "$work/next/DEBIAN/control"
    echo "# a comment that is new in $2" >>"$work/next/etc/namesrv/namesrv.toml"
    dpkg-deb --root-owner-group -Zgzip --build "$work/next" "$top/deb/next-$2.deb" >/dev/null
}

boot() {
    systemd-nspawn --quiet --directory "$top" --register=no --keep-unit --private-network --boot --console=pipe \
        </dev/null >"$work/boot.log" 2>&1 &
    container=$!
    end=$(($(date +%s) + 120))
    until leader=$(cat "/proc/$container/task/$container/children") && [ -n "$leader" ] &&
        inside systemctl is-system-running >/dev/null 2>&1; do
        [ "$(date +%s)" -lt "$end" ] || fail "the container does not boot: $(tail -n 5 "$work/boot.log")"
        sleep 0.5
    done
}

# Runs a command in the container.
inside() { # command...
    timeout 120 nsenter --target "${leader% }" --mount --uts --ipc --net --pid --cgroup \
        env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}

# Retries a command until it succeeds, for at most a minute.
wait_until() { # event, command...
    event=$1
    shift
    end=$(($(date +%s) + 60))
    until "$@" >"$work/until.log" 2>&1; do
        [ "$(date +%s)" -lt "$end" ] || fail "not within a minute: $event: $(cat "$work/until.log")"
        sleep 0.2
    done
}

server_pid() {
    inside systemctl show --property MainPID --value namesrv.service
}

has_route() {
    inside namesrvctl route orders --output json | grep -q '10.0.0.5:10911'
}

# Runs dpkg, and prints its output only if dpkg fails.
dpkg_() {
    inside dpkg "$@" >"$work/dpkg.log" 2>&1 </dev/null || fail "dpkg $*: $(cat "$work/dpkg.log")"
}

check_installation() {
    dpkg_ --install "/deb/$(basename "$package")"
    inside systemctl --quiet is-enabled namesrv.service || fail "the server is not enabled"
    inside systemctl --quiet is-active namesrv.service || fail "the server does not run"
    for unit in namesrv-broker-agent.service namesrv-console.service; do
        [ "$(inside systemctl is-enabled $unit)" = disabled ] || fail "$unit is enabled, expected disabled"
    done
    user=$(inside stat --format %U "/proc/$(server_pid)")
    [ "$user" = namesrv ] || fail "the server runs as user $user, expected namesrv"
    inside namesrvctl status >/dev/null || fail "the server is not ready"
    inside namesrv --config /etc/namesrv/namesrv.toml --print-config | grep -q '^listen_host *= "127.0.0.1"' ||
        fail "the server listens beyond loopback by default"
    for program in namesrv namesrv-broker-agent namesrv-console namesrvctl; do
        inside "$program" --help >/dev/null || fail "$program --help fails"
    done
    echo "installed: the server is ready, on loopback, as user namesrv"
}

check_agent() {
    sed '/^name_servers/s/=.*/= "127.0.0.1:9876"/' "$top/usr/share/doc/namesrv/examples/agent.toml" >"$top/etc/namesrv/agent.toml"
    inside systemctl enable --now namesrv-broker-agent.service 2>/dev/null || fail "the agent does not start"
    wait_until "the server has the route of the agent's broker" has_route
    echo "agent: the server has the route of the agent's broker"
}

console_page() { # path
    inside /usr/lib/namesrv/bin/python3 -c 'import sys, urllib.request
print(urllib.request.urlopen(f"http://127.0.0.1:9878/{sys.argv[1]}").read().decode())' "$1"
}

console_shows() { # path, text
    console_page "$1" | grep -q "$2"
}

# Checks the pages of the console about the present and, with the server's logs, about the past.
check_console() {
    sed -i 's|^CONSOLE_OPTIONS=.*|CONSOLE_OPTIONS=--logs /var/lib/namesrv/heartbeats --audit /var/lib/namesrv|' "$top/etc/namesrv/console.env"
    inside systemctl enable --now namesrv-console.service 2>/dev/null || fail "the console does not start"
    wait_until "the console shows the broker" console_shows brokers broker-a
    wait_until "the timeline of the console shows the broker" console_shows timeline broker-a
    wait_until "the console shows a report of the past" console_shows "what-if/report.html?wait=1" "<svg"
    inside systemctl stop namesrv-console.service
    [ "$(inside systemctl show --property Result --value namesrv-console.service)" = success ] || fail "the console failed while it stopped"
    inside systemctl start namesrv-console.service
    echo "console: shows the broker, now and in the past"
}

# Runs before the upgrade, since the package of the report depends on the same version of the server.
check_report() {
    dpkg_ --install "/deb/$(basename "$report")"
    inside systemctl --quiet is-active namesrv-staleness.timer || fail "the timer of the report is not active"
    inside namesrv-staleness /var/lib/namesrv/heartbeats --out /srv/report --engine embedded --quiet ||
        fail "namesrv-staleness failed"
    [ -s "$top/srv/report/summary.json" ] || fail "the report is empty: $(ls "$top/srv/report")"
    check_console
    dpkg_ --purge namesrv-staleness
    left=$(cd "$top" && find etc usr var/lib -path '*namesrv-staleness*' -o -path '*duckdb*')
    [ -z "$left" ] || fail "purge left files: $left"
    inside namesrvctl status >/dev/null || fail "the server is not ready after the report's package was purged"
    echo "report: written; the server runs on after the report's package was purged"
}

check_upgrades() {
    make_next_version "$package" 99.1
    sed -i 's/^#drain_seconds = .*/drain_seconds = 2/' "$top/etc/namesrv/namesrv.toml"
    cp "$top/etc/namesrv/namesrv.toml" "$work/changed.toml"
    # A shell that reads this file would run commands: `b.example` in the first line, `touch` in the second.
    # shellcheck disable=SC2016
    printf 'NAMESRV_HTTP_HOSTS=a.example, b.example\nNAMESRV_TLS_KEY_PASSWORD="$(touch /srv/ran)"\n' >"$top/etc/namesrv/namesrv.env"
    inside systemctl reload namesrv.service
    old=$(server_pid)
    dpkg_ --force-confdef --install /deb/next-99.1.deb
    cmp "$work/changed.toml" "$top/etc/namesrv/namesrv.toml" || fail "the upgrade changed the administrator's settings"
    [ -f "$top/etc/namesrv/namesrv.toml.dpkg-dist" ] || fail "the upgrade did not write the new settings file as namesrv.toml.dpkg-dist"
    [ "$(server_pid)" != "$old" ] || fail "the upgrade did not restart the server: $(cat "$work/dpkg.log")"
    inside journalctl --output cat "_PID=$old" | grep -q '"event":"stopped"' || fail "the old server did not stop gracefully"
    inside systemctl --quiet is-active namesrv-broker-agent.service || fail "the upgrade stopped the agent"
    [ ! -e "$top/srv/ran" ] || fail "the upgrade ran a line of namesrv.env as a command"
    wait_until "the server has the route after the upgrade" has_route
    echo "upgraded: settings kept, server restarted gracefully, route kept"

    make_next_version "$package" 99.2
    # systemd takes the comment as part of the value, which the server refuses; a shell would drop the comment.
    echo 'NAMESRV_BROKER_EXPIRY_SECONDS=60 # short' >>"$top/etc/namesrv/namesrv.env"
    sed -i '/^cluster_name/s/=.*/= 1/' "$top/etc/namesrv/agent.toml"
    old=$(server_pid)
    dpkg_ --force-confdef --install /deb/next-99.2.deb
    [ "$(server_pid)" = "$old" ] || fail "an upgrade with invalid settings stopped the server"
    for reason in '^namesrv: this version refuses' '60 # short' '^namesrv-broker-agent: this version refuses'; do
        grep -q "$reason" "$work/dpkg.log" || fail "the upgrade does not report '$reason': $(cat "$work/dpkg.log")"
    done
    has_route || fail "an upgrade with invalid settings stopped the agent"
    rm "$top/etc/namesrv/namesrv.env"
    inside systemctl restart namesrv.service || fail "the server does not start with corrected settings"
    echo "upgraded with invalid settings: the old server and the old agent keep running"
}

check_removal() {
    dpkg_ --remove namesrv
    for unit in namesrv.service namesrv-broker-agent.service namesrv-console.service; do
        ! inside systemctl --quiet is-active "$unit" || fail "$unit still runs"
    done
    for kept in etc/namesrv/namesrv.toml var/lib/namesrv; do
        [ -e "$top/$kept" ] || fail "remove deleted /$kept"
    done
    [ ! -e "$top/usr/lib/namesrv" ] || fail "remove left files: $(find "$top/usr/lib/namesrv" | head -n 5)"
    dpkg_ --force-confdef --install "/deb/$(basename "$package")"
    inside systemctl --quiet is-active namesrv.service || fail "the server does not run after it was installed again"
    dpkg_ --purge namesrv
    left=$(cd "$top" && find etc usr var/lib var/cache -path '*namesrv*' ! -path etc/namesrv)
    [ "$left" = etc/namesrv/agent.toml ] || fail "purge left files: $left"
    inside id namesrv >/dev/null || fail "purge removed the user"
    echo "removed: services stopped, settings and data kept; purged: only the administrator's files and the user are left"
}

require_tools
if [ $# = 0 ]; then
    "$root/.venv/bin/python" -m tools.debian_package --out "$work/dist"
    set -- "$work"/dist/namesrv_*.deb "$work"/dist/namesrv-staleness_*.deb
fi
package=$1 report=$2
check_files "$package"
check_files "$report"
make_root
mkdir "$top/deb"
cp "$package" "$report" "$top/deb/"
boot
check_installation
check_agent
check_report
check_upgrades
check_removal
echo "deb-check: passed"
