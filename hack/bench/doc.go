// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command bench measures node agents from outside: through the container runtime, the API server and /proc. It shares no code with the measured
// agents except clients of protocols.
//
//	bench static   # static pods: starts, restarts, CPU and memory at rest, beside bare CRI calls (the floor)
//	bench cluster  # a node of a control plane: bindings, requests, memory, how soon an exit is reported
//	bench api      # the HTTP API: logs, exec, port-forward, metrics pages
//	bench nodes    # simulated nodes of a control plane: examples/virtualnode beside KWOK
//
// The first three measure a kubelet beside the agent if -kubelet is set. hack/bench/run.sh COMMAND prepares the lab for a command, as make
// bench-agent, bench-cluster, bench-api and bench-nodes do. The packages static, cluster, api and nodes in internal document their measurements.
// The command is a separate module, so that the library does not get its dependencies.
package main
