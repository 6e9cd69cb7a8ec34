#!/bin/sh
# Fetches the real peers into .interop/<peer>/lib, and compiles our Java and Go programs, unless both are up to date.
#
# The script writes the names of missing tools to .interop/absent; tests that need one of these tools are skipped. Any
# other failure ends the script.
set -eu
here=$(cd "$(dirname "$0")" && pwd -P)
root=$(cd "$here/../.." && pwd -P)
into=$root/.interop

# A checksum of the files' contents. Times of change would be wrong: a fresh clone would fetch everything again.
checksum_of() {
    cat "$@" | cksum
}

is_current() { # stamp, files
    stamp=$1
    shift
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(checksum_of "$@")" ]
}

# The lock lets a second run wait for the first.
mkdir -p "$into"
if command -v flock >/dev/null 2>&1; then
    exec 9>"$into/lock"
    flock 9
fi

: >"$into/absent.new"
for tool in java javac mvn go prometheus; do
    if ! command -v "$tool" >/dev/null 2>&1; then
        echo "$tool" >>"$into/absent.new"
        echo "interop: $tool is NOT INSTALLED; tests that need $tool will be skipped" >&2
    fi
done
mv "$into/absent.new" "$into/absent"

fetch() { # peer
    pom=$here/maven/$1/pom.xml
    if is_current "$into/$1/stamp" "$pom"; then
        return
    fi
    echo "interop: fetching $1" >&2
    rm -rf "${into:?}/$1"
    mvn --batch-mode --quiet --file "$pom" dependency:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$into/$1/lib" >&2
    # Fail before the stamp is written if Maven copied no jar.
    ls "$into/$1/lib/"*.jar >/dev/null
    checksum_of "$pom" >"$into/$1/stamp"
}

if ! grep -qx go "$into/absent" && ! is_current "$into/go/stamp" "$here"/go/*.go "$here"/go/go.*; then
    echo "interop: building tests/interop/go" >&2
    rm -rf "$into/go"
    (cd "$here/go" && go vet . && go build -buildvcs=false -mod=readonly -o "$into/go/driver" .) >&2
    checksum_of "$here"/go/*.go "$here"/go/go.* >"$into/go/stamp"
fi

if grep -qxE 'java|javac|mvn' "$into/absent"; then
    exit 0
fi

for peer in "$here"/maven/*/; do
    fetch "$(basename "$peer")"
done

compile() { # client in the class path, files
    client=$1
    shift
    javac --release 11 -Xlint:all -Werror -proc:none -cp "$into/$client/lib/*" -d "$into/java/classes" "$@"
}

if ! is_current "$into/java/stamp" "$here"/java/*.java "$here"/java/grpc/*.java "$into"/client-5/stamp "$into"/grpc-5/stamp; then
    echo "interop: compiling tests/interop/java" >&2
    rm -rf "$into/java"
    mkdir -p "$into/java/classes"
    compile client-5 "$here"/java/*.java
    compile grpc-5 "$here"/java/grpc/*.java
    checksum_of "$here"/java/*.java "$here"/java/grpc/*.java "$into"/client-5/stamp "$into"/grpc-5/stamp >"$into/java/stamp"
fi
