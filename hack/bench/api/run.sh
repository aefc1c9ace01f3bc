#!/usr/bin/env bash
# SPDX-FileCopyrightText: The nodeagent Authors
# SPDX-License-Identifier: Apache-2.0

# Measures the API of examples/agent on the lab, which has to be up: hack/bench/api/run.sh [FLAG OF api]...
# KUBELET=path measures that kubelet too.
set -euo pipefail
cd "$(dirname "$0")/../../.."
. hack/bench/internal/run.sh

set_up bench-api
build "$work" examples/agent hack/bench/api
"$work/api" -cri "$endpoint" -image nodeagent.test/busybox:1 -agent "$work/agent" -cgroup-root "/$root" \
	${KUBELET:+-kubelet "$KUBELET"} "$@"
