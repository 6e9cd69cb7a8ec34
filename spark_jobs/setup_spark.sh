#!/bin/sh
# Installs Java for Spark from the system's packages if it is missing; without root, prints in one line what to do.
set -eu

needed=17

# Prints the major version of the `java` that Spark's launcher would take; nothing without a `java`.
java_major() {
    java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    command -v "$java" >/dev/null 2>&1 || return 0
    "$java" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1
}

say_and_fail() {
    echo "setup-spark: $1" >&2
    exit 2
}

found=$(java_major)
if [ "${found:-0}" -ge "$needed" ]; then
    echo "Java $found is there."
    exit 0
fi

if [ "$(id -u)" -ne 0 ]; then
    say_and_fail "Java $needed is missing and only root may install it; ask for a Java $needed runtime (Debian: openjdk-17-jre-headless), or set JAVA_HOME"
fi

if command -v apt-get >/dev/null 2>&1; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q || echo "setup-spark: apt-get update failed; trying with the lists that are there" >&2
    apt-get install -q -y --no-install-recommends openjdk-17-jre-headless ||
        apt-get install -q -y --no-install-recommends default-jre-headless || true
elif command -v dnf >/dev/null 2>&1; then
    dnf install -q -y java-17-openjdk-headless || dnf install -q -y java-21-openjdk-headless || true
elif command -v apk >/dev/null 2>&1; then
    apk add --quiet openjdk17-jre-headless || true
else
    say_and_fail "Java $needed is missing, and there is no apt-get, dnf or apk to get it with; install a Java $needed runtime, or set JAVA_HOME"
fi

# an old one that JAVA_HOME names would still be taken
found=$(java_major)
if [ "${found:-0}" -lt "$needed" ]; then
    say_and_fail "Java $needed could not be installed from the system's packages; install it by hand, or set JAVA_HOME"
fi
echo "Java $found is there."
