#!/bin/sh
# Installs Java for Spark from the system's packages if Java is missing or too old; without root, prints what to do.
set -eu

needed=17

# Prints the major version of the `java` that Spark's launcher would use, or nothing without `java`.
java_major() {
    java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    command -v "$java" >/dev/null 2>&1 || return 0
    "$java" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1
}

fail() {
    echo "setup-spark: $1" >&2
    exit 2
}

found=$(java_major)
if [ "${found:-0}" -ge "$needed" ]; then
    echo "Java $found is already installed"
    exit 0
fi

if [ "$(id -u)" -ne 0 ]; then
    fail "Java $needed or newer not found, and only root can install it: install a Java runtime (Debian: openjdk-17-jre-headless), or set JAVA_HOME"
fi

if command -v apt-get >/dev/null 2>&1; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q || echo "setup-spark: apt-get update failed; trying with the existing package lists" >&2
    apt-get install -q -y --no-install-recommends openjdk-17-jre-headless ||
        apt-get install -q -y --no-install-recommends default-jre-headless || true
elif command -v dnf >/dev/null 2>&1; then
    dnf install -q -y java-17-openjdk-headless || dnf install -q -y java-21-openjdk-headless || true
elif command -v apk >/dev/null 2>&1; then
    apk add --quiet openjdk17-jre-headless || true
else
    fail "Java $needed or newer not found, nor apt-get, dnf or apk to install it: install a Java runtime, or set JAVA_HOME"
fi

# An old Java in JAVA_HOME takes precedence over the installed one.
found=$(java_major)
if [ "${found:-0}" -lt "$needed" ]; then
    fail "no Java $needed or newer after the installation of the system's packages: install a Java runtime by hand, or set JAVA_HOME"
fi
echo "Java $found is installed"
