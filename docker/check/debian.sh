# shellcheck shell=sh
# A Debian 12 in a directory, from where this machine has its packages. To be sourced.
: "${work:?}"

debian() { # directory, packages with commas between
    # apt's own placeholders
    # shellcheck disable=SC2016
    source=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' |
        awk '$2 == "bookworm" && $3 == "main" { print $1; exit }')
    [ -n "$source" ] || {
        echo "apt knows no Debian 12 to make $1 from" >&2
        return 1
    }
    timeout 900 debootstrap --variant=minbase --include="$2" bookworm "$1" "$source" >"$work/debootstrap.log" 2>&1 || {
        tail -n 20 "$work/debootstrap.log" >&2
        return 1
    }
}
