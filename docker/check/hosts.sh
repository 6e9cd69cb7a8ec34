#!/bin/sh
# Runs the images as four hosts. Usage: hosts.sh WORK_DIR, after images.sh with the same directory.
# Each host is a network namespace on one bridge: three run a NameServer, the fourth runs the broker agent. Containers
# have a read-only root, their own user and no capabilities. The script checks that all four are healthy, that the three
# NameServers know the broker, and that every container exits with 0 after SIGTERM.
set -eu
work=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
python=$root/.venv/bin/python
# Prefix of all names, so that two runs at once do not collide.
mark=nd$$
net=10.213.47
hosts="1 2 3 4"

# shellcheck source=docker/check/buildah.sh
. "$root/docker/check/buildah.sh"

# The containers need no cgroups. crun inspects /sys/fs/cgroup nevertheless, and refuses to run where both versions of
# cgroups are mounted, so an empty tmpfs hides the directory from crun.
cat >"$work/runtime" <<EOF
#!/bin/sh
exec unshare --mount sh -c 'mount -t tmpfs tmpfs /sys/fs/cgroup && exec "\$@"' sh \\
    crun --root "$work/crun" --cgroup-manager=disabled "\$@"
EOF
chmod 755 "$work/runtime"

crun_() {
    timeout 60 "$work/runtime" "$@"
}

clean_up() {
    for host in $hosts; do
        crun_ delete --force "$mark-$host" >/dev/null 2>&1 || true
        ip netns delete "$mark-$host" 2>/dev/null || true
    done
    ip link delete "$mark" 2>/dev/null || true
    for image in namesrv broker-agent; do
        [ ! -s "$work/$image.container" ] || buildah_ rm "$(cat "$work/$image.container")" >/dev/null 2>&1 || true
    done
}
trap clean_up EXIT
trap 'exit 130' INT TERM

fail() {
    echo "hosts.sh: $*" >&2
    for log in "$work"/host-*.log; do
        echo "--- $log" >&2
        tail -n 15 "$log" >&2
    done
    exit 1
}

# Retries a command until it succeeds, for at most a minute.
wait_until() { # event, command...
    event=$1
    shift
    end=$(($(date +%s) + 60))
    until "$@" >"$work/until.log" 2>&1; do
        [ "$(date +%s)" -lt "$end" ] || {
            cat "$work/until.log" >&2
            fail "not within a minute: $event"
        }
        sleep 0.2
    done
}

make_network() {
    ip link add "$mark" type bridge
    ip link set "$mark" up
    for host in $hosts; do
        ip netns add "$mark-$host"
        ip link add "$mark-$host" type veth peer name eth0 netns "$mark-$host"
        ip link set "$mark-$host" master "$mark" up
        ip -n "$mark-$host" address add "$net.1$host/24" dev eth0
        ip -n "$mark-$host" link set eth0 up
        ip -n "$mark-$host" link set lo up
    done
}

unpack() { # image
    buildah_ from --pull-never "localhost/$1:check" >"$work/$1.container"
    buildah_ mount "$(cat "$work/$1.container")" >"$work/$1.rootfs"
    buildah_ inspect --type image "localhost/$1:check" >"$work/$1.json"
}

start() { # host, image, further options of bundle.py
    host=$1 image=$2
    shift 2
    mkdir -p "$work/data-$host"
    chown 10001:10001 "$work/data-$host"
    "$python" "$root/docker/check/bundle.py" "$work/$image.json" "$(cat "$work/$image.rootfs")" "$work/bundle-$host" \
        --netns "/run/netns/$mark-$host" --hostname "host-$host" --data "$work/data-$host" "$@" >"$work/health-$host"
    # The exit code goes to a file, since the subshell runs in the background.
    (
        timeout 600 "$work/runtime" run --bundle "$work/bundle-$host" "$mark-$host" >"$work/host-$host.log" 2>&1 &&
            code=0 || code=$?
        echo "$code" >"$work/code-$host"
    ) &
}

# Runs the command of the image's HEALTHCHECK in the container.
is_healthy() { # host
    xargs -d '\n' timeout 20 "$work/runtime" exec "$mark-$1" <"$work/health-$1"
}

knows_broker() { # host
    ip netns exec "$mark-4" timeout 10 "$root/.venv/bin/namesrvctl" brokers --server "$net.1$1:9876" --output json |
        grep -q '"broker-x"'
}

# True if the process has uid 10001, no capabilities and a read-only root, as /proc of this machine shows.
is_confined() { # host
    pid=$(crun_ state "$mark-$1" | "$python" -c 'import json, sys; print(json.load(sys.stdin)["pid"])')
    grep -q '^Uid:	10001	10001	10001	10001$' "/proc/$pid/status" &&
        grep -q '^CapBnd:	0000000000000000$' "/proc/$pid/status" &&
        grep -q '^NoNewPrivs:	1$' "/proc/$pid/status" &&
        awk '$5 == "/" { print $6 }' "/proc/$pid/mountinfo" | grep -q '^ro\b'
}

has_ended() { # host
    [ -s "$work/code-$1" ]
}

rm -f "$work"/host-*.log "$work"/code-*
make_network
unpack namesrv
unpack broker-agent
for host in 1 2 3; do
    start "$host" namesrv
done
for host in 1 2 3; do
    wait_until "host $host is healthy" is_healthy "$host"
    is_confined "$host" || fail "host $host has a writable root, another user than 10001, or capabilities"
    echo "host $host: healthy, read-only, uid 10001, no capabilities"
done

cat >"$work/agent.toml" <<EOF
cluster_name = "check"
broker_name = "broker-x"
broker_addr = "$net.14:10911"
name_servers = "$net.11:9876;$net.12:9876;$net.13:9876"

[[topics]]
topic_name = "orders"
EOF
chmod 644 "$work/agent.toml"
start 4 broker-agent --mount "$work/agent.toml:/etc/namesrv/agent.toml"
for host in 1 2 3; do
    wait_until "host $host knows the broker" knows_broker "$host"
    echo "host $host: knows the broker of host 4"
done
wait_until "the side-car is healthy" is_healthy 4
is_confined 4 || fail "host 4 has a writable root, another user than 10001, or capabilities"

# Stop the agent first, while the NameServers still run, so that it can unregister the broker.
for host in 4 1 2 3; do
    crun_ kill "$mark-$host" TERM
    wait_until "host $host ends" has_ended "$host"
    code=$(cat "$work/code-$host")
    [ "$code" = 0 ] || fail "host $host: exit code $code after SIGTERM"
    echo "host $host: exit code 0 after SIGTERM"
done
grep -q '"unregistered"' "$work/host-1.log" || fail "host 1 did not receive the broker's unregistration"
[ -n "$(find "$work/data-1" -name '*.jsonl*')" ] || fail "host 1 has no heartbeat log in its volume"
