#!/bin/sh
# Replaces `systemctl` on the hosts of these tests: starts, stops or restarts the server of the host $HOST, whose files
# are in $SERVICES/$HOST. Like a start of a Type=notify unit, the script returns when the server listens.
set -eu
name=$2
[ "$name" = namesrv ]
here=$SERVICES/$HOST
cd "$here"

start() {
    : >log.now
    # Command and environment as in docker/systemd/namesrv.service.
    (
        set -a
        . "$here/namesrv.env"
        NAMESRV_DATA_DIR=$here/data
        # shellcheck disable=SC2086
        exec "$here/namesrv/bin/namesrv" --log-format json ${ARGUMENTS-} </dev/null >/dev/null 2>log.now
    ) &
    echo $! >pid
    # The wait fails at once if the process ends.
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
