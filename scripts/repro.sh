#!/usr/bin/env bash
# Builds every binary twice, in two clones of the present commit at different paths with build caches of their own,
# and compares the sums: what comes out must depend on the source alone.
#
#   repro.sh FOLDER BINARY…      VERSION is stamped into both
set -euo pipefail
work=$1
shift
source=$(git rev-parse --show-toplevel)
rm -rf "$work"
mkdir -p "$work"
work=$(cd "$work" && pwd)

build() { # FOLDER BINARY…
	local tree=$1 name
	shift
	git clone -q --no-hardlinks "$source" "$tree"
	for name in "$@"; do
		(cd "$tree" && GOCACHE="$tree/.cache" make -s "bin/$name" VERSION="$VERSION")
	done
	rm -rf "$tree/.cache"
}

build "$work/first" "$@"
build "$work/a/longer/path/second" "$@"

differ=0
for name in "$@"; do
	one=$(sha256sum <"$work/first/bin/$name")
	two=$(sha256sum <"$work/a/longer/path/second/bin/$name")
	if [ "$one" = "$two" ]; then
		printf 'same    %s  %s\n' "${one%% *}" "$name"
	else
		printf 'DIFFERS %s  %s %s\n' "$name" "${one%% *}" "${two%% *}"
		differ=1
	fi
done
rm -rf "$work/first" "$work/a"
exit $differ
