#!/bin/sh
# Verifies the systemd units, and the limits of their exposure. Usage: systemd.sh WORK_DIR
# systemd-analyze works on a root directory in WORK_DIR, so this machine need not have the units' programs and users.
set -eu
work=$1
units=$(cd "$(dirname "$0")/../systemd" && pwd)
top=$work/systemd-root

mkdir -p "$top/etc/systemd/system" "$top/opt/namesrv/bin" "$top/bin" "$top/usr/lib/sysusers.d" "$top/usr/lib/tmpfiles.d" "$top/usr/lib/systemd"
cp "$units"/*.service "$units"/*.timer "$top/etc/systemd/system/"
cp "$units/namesrv.sysusers" "$top/usr/lib/sysusers.d/namesrv.conf"
cp "$units/namesrv.tmpfiles" "$top/usr/lib/tmpfiles.d/namesrv.conf"
# The units refer to targets of systemd itself.
cp -r /usr/lib/systemd/system "$top/usr/lib/systemd/"
for program in opt/namesrv/bin/namesrv opt/namesrv/bin/namesrv-broker-agent opt/namesrv/bin/namesrv-console opt/namesrv/bin/namesrv-staleness bin/kill; do
    printf '#!/bin/sh\n' >"$top/$program"
    chmod 755 "$top/$program"
done

for unit in "$units"/*.service "$units"/*.timer; do
    name=$(basename "$unit")
    # --recursive-errors=no omits messages about other units.
    output=$(timeout 60 systemd-analyze --root="$top" --man=no --recursive-errors=no verify "$top/etc/systemd/system/$name" 2>&1) || {
        echo "$output" >&2
        echo "systemd.sh: $name is invalid" >&2
        exit 1
    }
    [ -z "$output" ] || {
        echo "$output" >&2
        echo "systemd.sh: warnings about $name" >&2
        exit 1
    }
    echo "valid: $name"
done

check_exposure() { # unit, limit of `systemd-analyze security` in tenths
    timeout 60 systemd-analyze --root="$top" --offline=yes --no-pager --threshold="$2" security "$1" >"$work/security-$1.txt" 2>&1 || {
        cat "$work/security-$1.txt" >&2
        echo "systemd.sh: the exposure of $1 exceeds the limit of $2 tenths" >&2
        exit 1
    }
    tail -n 1 "$work/security-$1.txt"
}

check_exposure namesrv.service 15
check_exposure namesrv-broker-agent.service 15
check_exposure namesrv-console.service 20
check_exposure namesrv-staleness.service 20

timeout 60 systemd-sysusers --root="$top" "$top/usr/lib/sysusers.d/namesrv.conf" >"$work/sysusers.log" 2>&1 || {
    cat "$work/sysusers.log" >&2
    exit 1
}
grep -q '^namesrv:' "$top/etc/passwd"
timeout 60 systemd-tmpfiles --root="$top" --create "$top/usr/lib/tmpfiles.d/namesrv.conf"
[ -d "$top/etc/namesrv" ]
echo "sysusers.d makes the user namesrv, and tmpfiles.d the directory /etc/namesrv"
