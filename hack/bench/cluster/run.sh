#!/usr/bin/env bash
# SPDX-FileCopyrightText: The nodeagent Authors
# SPDX-License-Identifier: Apache-2.0

# Measures examples/agent as a node of a control plane, on the lab, which has to be up: hack/bench/cluster/run.sh [FLAG OF cluster]...
# KUBELET=path measures that kubelet too, and FLOOR=none leaves bare CRI calls out.
set -euo pipefail
cd "$(dirname "$0")/../../.."
. hack/bench/internal/run.sh

set_up bench-cluster
build "$work" examples/agent hack/bench hack/bench/cluster
floor=(-floor "$work/bench")
if [ "${FLOOR:-}" = none ]; then floor=(); fi
"$work/cluster" -cri "$endpoint" -image nodeagent.test/busybox:1 -bridge "$bridge" -agent "$work/agent" -cgroup-root "/$root" \
	${KUBELET:+-kubelet "$KUBELET"} "${floor[@]}" "$@"
