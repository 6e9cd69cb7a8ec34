#!/bin/sh
# Starts compose.reach.yml, and checks that clients on the host can send to all brokers. Usage: reach.sh WORK_DIR, after
# images.sh with the same directory, and with Docker Compose in WORK_DIR/compose.
# The Docker engine comes from Debian's packages, unpacked into WORK_DIR. It runs in a network namespace: this machine's
# firewall and ports do not change.
set -eu
work=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
# Name of the network namespace; its number lets two runs at once not collide.
host=nr$$
engine=$work/engine
# The order of sort must not depend on this machine's language.
export LC_ALL=C DOCKER_HOST="unix://$engine/socket" PATH="$PATH:$engine/usr/bin"

# shellcheck source=docker/check/buildah.sh
. "$root/docker/check/buildah.sh"

on_host() { # command...
    timeout 300 nsenter --net="/run/netns/$host" "$@"
}

compose() {
    on_host "$work/compose" --file "$root/docker/compose.yml" --file "$root/docker/compose.reach.yml" "$@"
}

clean_up() {
    code=$?
    trap - EXIT
    [ "$code" = 0 ] || tail -n 20 "$work/apt.log" "$engine/log" "$work/compose.log" >&2 || true
    compose down --volumes >/dev/null 2>&1 || true
    if [ -s "$engine/pid" ]; then kill "$(cat "$engine/pid")" && wait; fi
    ip netns delete "$host"
    # The engine leaves its empty cgroups.
    find /sys/fs/cgroup -maxdepth 2 -name "$host" -exec rmdir {} +
    exit "$code"
}

start_engine() {
    mkdir -p "$engine/bin"
    (cd "$engine" && timeout 300 apt-get download docker.io containerd runc iptables libip4tc2 libip6tc2 libxtables12 \
        libnetfilter-conntrack3 libnfnetlink0) >"$work/apt.log" 2>&1
    for package in "$engine"/*.deb; do dpkg --extract "$package" "$engine"; done
    ln -s ../usr/sbin/iptables-nft "$engine/bin/iptables"
    ln -s ../usr/sbin/ip6tables-nft "$engine/bin/ip6tables"
    PATH="$engine/bin:$engine/usr/sbin:$engine/usr/bin:$PATH" LD_LIBRARY_PATH=$engine/usr/lib/x86_64-linux-gnu \
        XTABLES_LIBDIR=$engine/usr/lib/x86_64-linux-gnu/xtables \
        nsenter --net="/run/netns/$host" dockerd --data-root "$engine/data" --exec-root "$engine/run" \
        --pidfile "$engine/pid" --host "$DOCKER_HOST" --cgroup-parent "/$host" >"$engine/log" 2>&1 &
    timeout 60 sh -c 'until docker version >/dev/null 2>&1; do sleep 0.2; done'
}

load() { # name of the image in images.sh, name in compose.yml
    buildah_ push --quiet "localhost/$1:check" "docker-archive:$work/$1.tar:$2:local"
    docker load --quiet --input "$work/$1.tar" >/dev/null
    rm "$work/$1.tar"
}

# Compares the broker addresses in standard input with the expected ones.
expect_brokers() { # subject, addresses separated by blanks
    found=$(grep -o '[a-z0-9.-]*:109[0-9]*' | sort -u | paste -s -d ' ')
    [ "$found" = "$2" ] || {
        echo "reach.sh: $1 has brokers $found, expected $2" >&2
        exit 1
    }
}

ip netns add "$host"
trap clean_up EXIT
trap 'exit 130' INT TERM
ip -n "$host" link set lo up
start_engine
load namesrv namesrv
load broker-agent namesrv-broker-agent
compose up --no-build --wait broker-a broker-a-slave broker-b broker-b-slave >"$work/compose.log" 2>&1
for port in 19876 19886 19896; do
    on_host "$root/.venv/bin/namesrvctl" --server "127.0.0.1:$port" route orders |
        expect_brokers "route at port $port" "127.0.0.1:10911 127.0.0.1:10912 127.0.0.1:10921 127.0.0.1:10922"
    # Eight messages: one for each queue.
    on_host "$root/.venv/bin/python" "$root/demo/memory_broker.py" produce --name-servers "127.0.0.1:$port" \
        --topic orders 1 2 3 4 5 6 7 8 | expect_brokers "send result at port $port" "127.0.0.1:10911 127.0.0.1:10921"
done
compose exec -T namesrv-1 namesrvctl route orders |
    expect_brokers "route in a container" "broker-a-slave:10911 broker-a:10911 broker-b-slave:10911 broker-b:10911"
echo "compose.reach.yml: clients on the host send to both brokers, and containers get the brokers' own addresses"
