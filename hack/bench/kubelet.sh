#!/usr/bin/env bash
# SPDX-FileCopyrightText: The nodeagent Authors
# SPDX-License-Identifier: Apache-2.0

# Builds the kubelet that the benchmark compares with, from the public Go modules: hack/bench/kubelet.sh [DIR]
# It writes kubelet/ (a scratch module, kept so that a second run takes seconds) and bin/kubelet into DIR (default .lab of the
# checkout). No go.mod of this repository changes: the kubelet is measured from outside, never imported.
set -euo pipefail

version=${KUBELET_VERSION:-v1.37.1}
staging=v0.${version#v1.}
dir=${1:-$(cd "$(dirname "$0")/../.." && pwd)/.lab}
stamp="$version $(go env GOVERSION)"

mkdir -p "$dir/bin" "$dir/kubelet"
dir=$(cd "$dir" && pwd)
bin="$dir/bin/kubelet"
if [ -x "$bin" ] && [ "$(cat "$dir/kubelet/stamp" 2>/dev/null)" = "$stamp" ]; then
	echo "kubelet.sh: $bin is up to date ($stamp)"
	exit 0
fi

echo "kubelet.sh: building kubelet $version into $bin (minutes when nothing is cached)"
cd "$dir/kubelet"
export GOFLAGS=-mod=mod GOWORK=off
cat >go.mod <<MOD
module kubelet.invalid/build

go 1.26.0

require k8s.io/kubernetes $version
MOD

# k8s.io/kubernetes replaces its staging modules by local directories. A module that requires it does not inherit these
# replacements: pin each staging module to the tag that was published with the release.
gomod=$(go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/^\s*"GoMod": "\(.*\)",*$/\1/p')
go mod edit -json "$gomod" | sed -n 's/^\s*"Path": "\.\/staging\/src\/\(.*\)",*$/\1/p' | sort -u |
	while read -r module; do
		go mod edit -replace "$module=$module@$staging"
	done

minor=${version#v1.}
pkg=k8s.io/component-base/version
nice -n 19 go build -p "${KUBELET_BUILD_JOBS:-2}" -trimpath -o "$bin.new" \
	-ldflags "-s -w -X $pkg.gitVersion=$version -X $pkg.gitMajor=1 -X $pkg.gitMinor=${minor%%.*}" \
	k8s.io/kubernetes/cmd/kubelet
mv "$bin.new" "$bin"
echo "$stamp" >stamp
"$bin" --version
