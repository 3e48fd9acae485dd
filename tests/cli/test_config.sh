#!/bin/sh
# The default configuration that is installed is what the daemon itself prints, and the daemon takes
# every line of it with the comment mark removed.
set -eu
build=$1
source=$(cd "$(dirname "$0")/../.." && pwd)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$build/bin/commgemmd" --print-config >"$work/printed.conf"
diff -u "$source/systemd/commgemmd.conf" "$work/printed.conf"

sed 's/^#\([a-z]\)/\1/' "$work/printed.conf" >"$work/all.conf"
"$build/bin/commgemmd" --config "$work/all.conf" --check-config >/dev/null
