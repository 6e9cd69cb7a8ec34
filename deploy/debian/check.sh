#!/bin/sh
# Installs the Debian packages on a Debian 12 of its own, which systemd-nspawn boots: it serves, it is upgraded with
# settings of the administrator, and it is removed and purged. Needs root; what Debian has is installed if it is missing.
# Usage: check.sh [NAMESRV-PACKAGE STALENESS-PACKAGE]; without them they are made first.
# DEB_CHECK_BASE names a Debian 12 with python3, procps and systemd that is there already, and is copied.
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

require() {
    [ "$(id -u)" = 0 ] || fail "needs root, to boot a container"
    for command in debootstrap systemd-nspawn lintian man; do
        command -v "$command" >/dev/null || set -- "$@" "$command"
    done
    [ $# = 0 ] || timeout 600 apt-get install --yes --no-install-recommends debootstrap systemd-container lintian man-db \
        >"$work/apt.log" 2>&1 || fail "cannot install $*: $(tail -n 3 "$work/apt.log")"
}

make_root() {
    if [ -n "${DEB_CHECK_BASE-}" ]; then cp -a "$DEB_CHECK_BASE" "$top"; else debian "$top" python3,procps,systemd-sysv; fi
}

look_over() { # package
    # the maintainer is the maker of the package
    lintian --allow-root --fail-on error,warning --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog,root-in-contact "$1" ||
        fail "lintian has something against $1"
    dpkg-deb --fsys-tarfile "$1" | tar --extract --directory "$work" ./usr/share/man
    for page in "$work"/usr/share/man/man*/*; do
        warnings=$(LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings --encoding UTF-8 --local-file "$page" 2>&1 >/dev/null)
        [ -z "$warnings" ] || fail "$page: $warnings"
    done
    echo "lintian and man have nothing against $(basename "$1")"
}

# The package as its next version, which has another settings file.
next_version() { # package, version
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

inside() { # command...
    timeout 120 nsenter --target "${leader% }" --mount --uts --ipc --net --pid --cgroup \
        env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}

until_ok() { # what, command...
    what=$1
    shift
    end=$(($(date +%s) + 60))
    until "$@" >"$work/until.log" 2>&1; do
        [ "$(date +%s)" -lt "$end" ] || fail "$what: not within a minute: $(cat "$work/until.log")"
        sleep 0.2
    done
}

pid() {
    inside systemctl show --property MainPID --value namesrv.service
}

has_route() {
    inside namesrvctl route orders --output json | grep -q '10.0.0.5:10911'
}

# The output of dpkg is shown only when it fails.
dpkg_() {
    inside dpkg "$@" >"$work/dpkg.log" 2>&1 </dev/null || fail "dpkg $*: $(cat "$work/dpkg.log")"
}

installs() {
    dpkg_ --install "/deb/$(basename "$package")"
    inside systemctl --quiet is-enabled namesrv.service || fail "the server is not enabled"
    inside systemctl --quiet is-active namesrv.service || fail "the server does not run"
    for unit in namesrv-broker-agent.service namesrv-console.service; do
        [ "$(inside systemctl is-enabled $unit)" = disabled ] || fail "$unit is not switched off"
    done
    user=$(inside stat --format %U "/proc/$(pid)")
    [ "$user" = namesrv ] || fail "the server runs as $user"
    inside namesrvctl status >/dev/null || fail "the server is not ready"
    inside namesrv --config /etc/namesrv/namesrv.toml --print-config | grep -q '^listen_host *= "127.0.0.1"' ||
        fail "the server listens beyond loopback by default"
    for program in namesrv namesrv-broker-agent namesrv-console namesrvctl; do
        inside "$program" --help >/dev/null || fail "$program --help fails"
    done
    echo "installed: the server runs as user namesrv, ready, on loopback"
}

serves() {
    sed '/^name_servers/s/=.*/= "127.0.0.1:9876"/' "$top/usr/share/doc/namesrv/examples/agent.toml" >"$top/etc/namesrv/agent.toml"
    inside systemctl enable --now namesrv-broker-agent.service 2>/dev/null || fail "the agent does not start"
    until_ok "the route of the agent's broker" has_route
    echo "the route of the agent's broker is served"
}

page() { # path
    inside /usr/lib/namesrv/bin/python3 -c 'import sys, urllib.request
print(urllib.request.urlopen(f"http://127.0.0.1:9878/{sys.argv[1]}").read().decode())' "$1"
}

shows() { # path, text
    page "$1" | grep -q "$2"
}

# As the unit has it, with the past of the server beside it, which its own process reads, and a report drawn of that.
consoles() {
    sed -i 's|^CONSOLE_OPTIONS=.*|CONSOLE_OPTIONS=--logs /var/lib/namesrv/heartbeats --audit /var/lib/namesrv|' "$top/etc/namesrv/console.env"
    inside systemctl enable --now namesrv-console.service 2>/dev/null || fail "the console does not start"
    until_ok "the broker on the console's page" shows brokers broker-a
    until_ok "the broker on the page of the past" shows timeline broker-a
    until_ok "a report of the past" shows "what-if/report.html?wait=1" "<svg"
    inside systemctl stop namesrv-console.service
    [ "$(inside systemctl show --property Result --value namesrv-console.service)" = success ] || fail "the console did not end well"
    inside systemctl start namesrv-console.service
    echo "the console shows the broker, also in the past"
}

# Before the upgrade: the two packages of a version belong together.
reports() {
    dpkg_ --install "/deb/$(basename "$report")"
    inside systemctl --quiet is-active namesrv-staleness.timer || fail "the timer of the report does not run"
    inside namesrv-staleness /var/lib/namesrv/heartbeats --out /srv/report --engine embedded --quiet ||
        fail "the report cannot be made"
    [ -s "$top/srv/report/summary.json" ] || fail "the report is empty: $(ls "$top/srv/report")"
    consoles
    dpkg_ --purge namesrv-staleness
    left=$(cd "$top" && find etc usr var/lib -path '*namesrv-staleness*' -o -path '*duckdb*')
    [ -z "$left" ] || fail "left behind by purge: $left"
    inside namesrvctl status >/dev/null || fail "the server is not ready without the report's package"
    echo "the report is made; its package can be purged alone"
}

upgrades() {
    next_version "$package" 99.1
    sed -i 's/^#drain_seconds = .*/drain_seconds = 2/' "$top/etc/namesrv/namesrv.toml"
    cp "$top/etc/namesrv/namesrv.toml" "$work/changed.toml"
    # to a shell, the first line is a command, and the second one runs another
    # shellcheck disable=SC2016
    printf 'NAMESRV_HTTP_HOSTS=a.example, b.example\nNAMESRV_TLS_KEY_PASSWORD="$(touch /srv/ran)"\n' >"$top/etc/namesrv/namesrv.env"
    inside systemctl reload namesrv.service
    old=$(pid)
    dpkg_ --force-confdef --install /deb/next-99.1.deb
    cmp "$work/changed.toml" "$top/etc/namesrv/namesrv.toml" || fail "the upgrade changed the administrator's settings"
    [ -f "$top/etc/namesrv/namesrv.toml.dpkg-dist" ] || fail "the new settings file is not beside the old one"
    [ "$(pid)" != "$old" ] || fail "the upgrade did not restart the server: $(cat "$work/dpkg.log")"
    inside journalctl --output cat "_PID=$old" | grep -q '"event":"stopped"' || fail "the old server did not stop gracefully"
    inside systemctl --quiet is-active namesrv-broker-agent.service || fail "the upgrade ended the agent"
    [ ! -e "$top/srv/ran" ] || fail "the upgrade ran a line of the settings as a command"
    until_ok "the route after the upgrade" has_route
    echo "upgraded: settings kept, restarted gracefully, the route is there"

    next_version "$package" 99.2
    # to a shell, the value would end before the comment
    echo 'NAMESRV_BROKER_EXPIRY_SECONDS=60 # short' >>"$top/etc/namesrv/namesrv.env"
    sed -i '/^cluster_name/s/=.*/= 1/' "$top/etc/namesrv/agent.toml"
    old=$(pid)
    dpkg_ --force-confdef --install /deb/next-99.2.deb
    [ "$(pid)" = "$old" ] || fail "refused settings ended the running server"
    for reason in '^namesrv: this version refuses' '60 # short' '^namesrv-broker-agent: this version refuses'; do
        grep -q "$reason" "$work/dpkg.log" || fail "the upgrade does not report '$reason': $(cat "$work/dpkg.log")"
    done
    has_route || fail "refused settings ended the agent"
    rm "$top/etc/namesrv/namesrv.env"
    inside systemctl restart namesrv.service || fail "the server does not start with corrected settings"
    echo "upgraded with settings that are refused: the old server and the old agent went on running"
}

leaves() {
    dpkg_ --remove namesrv
    for unit in namesrv.service namesrv-broker-agent.service namesrv-console.service; do
        ! inside systemctl --quiet is-active "$unit" || fail "$unit still runs"
    done
    for kept in etc/namesrv/namesrv.toml var/lib/namesrv; do
        [ -e "$top/$kept" ] || fail "remove took /$kept"
    done
    [ ! -e "$top/usr/lib/namesrv" ] || fail "left behind: $(find "$top/usr/lib/namesrv" | head -n 5)"
    dpkg_ --force-confdef --install "/deb/$(basename "$package")"
    inside systemctl --quiet is-active namesrv.service || fail "the server does not run after it was installed again"
    dpkg_ --purge namesrv
    left=$(cd "$top" && find etc usr var/lib var/cache -path '*namesrv*' ! -path etc/namesrv)
    [ "$left" = etc/namesrv/agent.toml ] || fail "left behind by purge: $left"
    inside id namesrv >/dev/null || fail "purge removed the user"
    echo "removed: stopped, settings and data kept; purged: nothing left but what the administrator wrote, and the user"
}

require
if [ $# = 0 ]; then
    "$root/.venv/bin/python" -m tools.debian_package --out "$work/dist"
    set -- "$work"/dist/namesrv_*.deb "$work"/dist/namesrv-staleness_*.deb
fi
package=$1 report=$2
look_over "$package"
look_over "$report"
make_root
mkdir "$top/deb"
cp "$package" "$report" "$top/deb/"
boot
installs
serves
reports
upgrades
leaves
echo "deb-check: all well"
