#!/usr/bin/env bash
# SPDX-FileCopyrightText: The nodeagent Authors
# SPDX-License-Identifier: Apache-2.0

# Builds the KWOK that the benchmark of simulated nodes compares with, from its public Go module: hack/bench/kwok.sh [DIR]
# It writes bin/kwok and kwok-stages.yaml, the stages that kwokctl gives to a cluster with leases, into DIR (default .lab of the checkout).
set -euo pipefail

version=${KWOK_VERSION:-v0.8.0}
dir=${1:-$(cd "$(dirname "$0")/../.." && pwd)/.lab}
mkdir -p "$dir/bin"
dir=$(cd "$dir" && pwd)

echo "kwok.sh: building kwok $version into $dir/bin/kwok"
CGO_ENABLED=0 GOBIN="$dir/bin" GOWORK=off GOFLAGS= nice -n 19 go install -trimpath \
	-ldflags "-s -w -X sigs.k8s.io/kwok/pkg/consts.Version=$version" "sigs.k8s.io/kwok/cmd/kwok@$version"
stages=$(cd / && go mod download -json "sigs.k8s.io/kwok@$version" | sed -n 's/^\s*"Dir": "\(.*\)",*$/\1/p')/kustomize/stage
for stage in node/fast/node-initialize node/heartbeat-with-lease/node-heartbeat-with-lease pod/fast/pod-ready pod/fast/pod-complete pod/fast/pod-delete; do
	printf -- '---\n'
	cat "$stages/$stage.yaml"
done >"$dir/kwok-stages.yaml"
"$dir/bin/kwok" --version
