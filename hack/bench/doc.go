// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command bench measures node agents from outside: through the container runtime, the API server and /proc. It shares no code with the agents
// that it measures, but clients of protocols.
//
//	bench static   # static pods: starts, restarts, CPU and memory at rest, beside bare CRI calls (the floor)
//	bench cluster  # a node of a control plane: bindings, requests, memory, how soon an exit is reported
//	bench api      # the HTTP API: logs, exec, port-forward, metrics pages
//
// Each has a kubelet beside the agent if it is given one. hack/bench/run.sh COMMAND sets all of it up on the lab, as make bench-agent, bench-cluster
// and bench-api do. The packages static, cluster and api below internal describe their measurements. The command is a module of its own, so that its
// dependencies are not those of the library.
package main
