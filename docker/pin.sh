#!/bin/sh
# Pins the images in the Dockerfiles and compose files to the current digest of their tag. `docker buildx imagetools`
# looks the digest up, with your credentials and mirrors.
set -eu
cd "$(dirname "$0")"

images=$(sed -n -E 's/^ARG BASE_IMAGE=([^@]+)(@.*)?$/\1/p; s/.*_IMAGE:-([^@}]+).*/\1/p' ./*.Dockerfile compose*.yml | sort -u)
for image in $images; do
    digest=$(docker buildx imagetools inspect "$image" --format '{{.Manifest.Digest}}')
    expr "$digest" : 'sha256:[0-9a-f]\{64\}$' >/dev/null || {
        echo "pin.sh: invalid digest of $image: $digest" >&2
        exit 1
    }
    sed -i -E "s|$image(@sha256:[0-9a-f]+)?|$image@$digest|" ./*.Dockerfile compose*.yml
    echo "$image@$digest"
done
