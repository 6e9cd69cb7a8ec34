#!/bin/sh
# What `systemctl` is to the hosts of these tests: it starts, stops and restarts the `namesrv` of the host it is called
# on, whose files are in $SERVICES/<host>, and like a Type=notify unit it returns when the server listens.
set -eu
name=$2
[ "$name" = namesrv ]
here=$SERVICES/$HOST
cd "$here"

start() {
    : >log.now
    # as docker/systemd/namesrv.service does
    (
        set -a
        . "$here/namesrv.env"
        NAMESRV_DATA_DIR=$here/data
        # shellcheck disable=SC2086
        exec "$here/namesrv/bin/namesrv" --log-format json ${ARGUMENTS-} </dev/null >/dev/null 2>log.now
    ) &
    echo $! >pid
    # ends at once when the process does
    timeout 300 sh -c 'until grep -q "\"listening\"" log.now; do kill -0 "$(cat pid)" && sleep 0.05 || exit 1; done'
}

stop() {
    kill -TERM "$(cat pid)"
    timeout 300 tail --pid="$(cat pid)" -f /dev/null
    cat log.now >>log
}

case $1 in
    start) start ;;
    stop) stop ;;
    restart) stop && start ;;
    *) exit 2 ;;
esac
