#!/usr/bin/env bash
# SPDX-FileCopyrightText: The nodeagent Authors
# SPDX-License-Identifier: Apache-2.0

# What the run.sh of all benchmarks do, which source this in the root of the repository.

# build DIR PACKAGE... builds programs into a directory, as they would be shipped.
build() {
	local dir=$1 package
	shift
	for package; do
		CGO_ENABLED=0 go build -tags=grpcnotrace -trimpath -ldflags='-s -w' -o "$dir/$(basename "$package")" "./$package"
	done
}

# set_up NAME finds the lab, sets $endpoint and $bridge to what it has, $work to a new directory, and $root to a new cgroup in every
# hierarchy that is mounted, for the agents' kubepods. The last two go when the script ends.
set_up() {
	local lab tree
	lab=$(.lab/bin/lab status)
	endpoint=$(awk '$1 == "endpoint" { print $2; exit }' <<<"$lab")
	# shellcheck disable=SC2034 # not all want it
	bridge=$(awk '$1 == "network" { print $4; exit }' <<<"$lab")
	[ -n "$endpoint" ] || { echo "run.sh: the lab is not up: make lab" >&2; exit 1; }
	root=nodeagent-$1-$$
	trees=()
	for tree in /sys/fs/cgroup /sys/fs/cgroup/*; do
		if [ -e "$tree/cgroup.procs" ] && [ ! -L "$tree" ]; then trees+=("$tree"); fi
		if [ -e /sys/fs/cgroup/cgroup.procs ]; then break; fi # cgroup v2 is one tree
	done
	work=$(mktemp -d)
	trap clean_up EXIT
	mkdir "${trees[@]/%//$root}"
}

clean_up() {
	local tree
	rm -rf "$work"
	for tree in "${trees[@]}"; do find "$tree/$root" -depth -type d -exec rmdir {} + || true; done
}
