// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package agent is a whole node: the packages of this module, connected as the kubelet connects its parts, with a kubelet's configuration and
// defaults. It has no rules of its own: each rule is in the package of its engine, and a test limits this package to 1,600 lines.
//
//	config, err := agent.LoadConfig("/etc/nodeagent/agent.yaml") // a KubeletConfiguration and a NodeConfiguration
//	a, err := agent.New(ctx, config, agent.Options{OwnProcess: true})
//	err = a.Run(ctx)
//
// A program that runs pods as plain processes calls process.Main of package cri/process first in its main.
//
// # Parts
//
// Config selects the parts, and Options replaces them. Each part needs a setting:
//
//   - Pods come from staticPodPath, staticPodURL, the API server of kubeconfig and Options.Sources. New refuses a node without any.
//   - containerRuntimeEndpoint is the container runtime. Without it containers are plain processes, or run in Options.Runtime: then pods have
//     no images of registries, and volumes and cgroups only by Options.Volumes and Options.Cgroups.
//   - kubeconfig makes the machine a node of a cluster: Node object, lease, statuses, events, mirror pods, tokens, and the checks of admission.
//     With tokensOnly it issues tokens alone. Without it the pods of the sources run, and objectsDir or Options.Objects has their config maps and secrets.
//   - cgroupsPerQOS gives pods their cgroups, also plain processes if the agent is root, and the node its statistics. Without it no limit of a pod as a whole holds, no pod is evicted
//     unless Options.Measurer is set, and the pages of statistics are empty.
//   - enableServer serves the kubelet's HTTP API. Without it kubectl logs, exec and top do not work on the node.
//   - Probes, volumes (where the runtime mounts), image and container GC and log rotation are always there.
//   - shutdownGracePeriod delays the shutdown of the machine for its pods.
//
// # Lifecycle
//
// New creates all parts and starts none. It reads the machine, and asks the runtime for its features, so the runtime must be up. Run runs the parts
// until its context ends, or a part fails. A stopped agent leaves its pods running; a restarted agent continues with them, unless drainOnExit or
// Options.Ephemeral is set. Accessors such as Reconciler return the engines, whose methods may be called from any goroutine.
//
// # Errors
//
// An error of New names the field or the option, and says what to do. A field of the kubelet's configuration that this version does not support is
// an error of LoadConfig with its name. An agent whose Run is not called is reported to the Logger within 10 s.
//
// # Differs from the kubelet
//
//   - Defaults: see package kubeletconfig. Without containerRuntimeEndpoint there is no container runtime, and rootDir is /var/lib/nodeagent.
//   - Static pods of a node without a cluster are evicted, and wait until the node has recovered.
//   - The pods last listed are kept in rootDir, and run when the agent starts without its sources.
//
// # When not to use it
//
// To run pods alone: package lifecycle with pleg, as in examples/minimal, is 90 lines and a third of the packages.
//
// Test kit: package nodetest runs an agent on a simulated machine in the virtual time of testing/synctest. With Options.Runtime of package critest,
// Options.API of package apiservertest and Options.Ephemeral, a program does so with parts of its own.
package agent
