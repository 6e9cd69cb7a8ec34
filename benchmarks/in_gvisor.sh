#!/bin/bash
# Runs a command under gVisor's kernel, which has its own limit of open files, in the current folder:
#     benchmarks/in_gvisor.sh FILES COMMAND...
# Needs root, and runsc on PATH. The command changes no file of this machine, and has no network but its own loopback.
set -euo pipefail
bundle=$(mktemp -d)
trap 'rm -r "$bundle"' EXIT
runsc spec -bundle "$bundle" -cwd "$PWD" -- "${@:2}"
# Java looks up the address of its host name.
sed -i -e "s/1024/$1/" -e 's|"rootfs"|"/"|' -e 's/"readonly": true/"readonly": false/' -e 's/"runsc"/"localhost"/' \
    "$bundle/config.json"
# gVisor writes to a file from its beginning, so that lines of standard output would replace those of standard error.
runsc --network=none --ignore-cgroups --overlay2=root:memory run -bundle "$bundle" "benchmarks-$$" 2>&1 | cat
