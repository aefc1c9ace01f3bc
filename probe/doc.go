// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package probe runs liveness, readiness and startup probes of containers: when each is due, which results add up to
// success or failure, and what is remembered of them. It does not know pods and restarts nothing: package podprobe makes
// targets of a pod and says what a result means for it.
//
// What belongs here is the engine, and the probers that need nothing but the standard library: [TCP], [Exec] and [Func].
// HTTP is in package httpprobe and gRPC in package grpcprobe, so that whoever needs neither links neither.
//
// # Model
//
// A [Prober] probes once. A [State] is one probe as it stands: pure, with the time as an argument. It has the thresholds,
// the initial delay, what waits for the startup probe, and what a new container begins with. A [Set] puts both to work:
//
//	set := probe.NewSet(probe.Options{Store: "/var/lib/agent/probes", Hooks: probe.Hooks{
//		Changed: func(k probe.Key, v probe.Value) { queue.Add(k.PodUID) },
//	}})
//	go func() { done <- set.Run(ctx) }()
//	…
//	err := set.SyncPod(uid, targets) // all of a pod's, whenever one has changed
//
// [Set.Sync] and, for one pod, [Set.SyncPod] are level-triggered: they say all that is wanted, and how each container
// is now. When a startup probe has succeeded, the container's other probes begin once the targets say Started. A
// container without a target for a startup probe has started when it runs.
//
// A probe at rest is an entry in a heap, less than 800 bytes with its names, and no goroutine. Those in flight, one
// goroutine each, are at most Options.Parallel, not counting those that have been for more than a second, and at most
// Options.PodParallel of one pod. The others wait, are counted, and start one of each pod in turn: pods whose containers
// never answer delay the probes of other pods by about a second at most.
// What becomes due within [MinPeriod] begins together: a probe is never early, and up to that late. After the start of
// the agent first probes are spread over their period. Sync looks at every target, SyncPod only at those of its pod.
//
// With Options.Store results are kept in a file, by container ID. The next agent begins with them, so that nothing that
// is ready stops being so and no startup probe runs twice. The file is never synced to the disk: it only has to outlive
// the agent, as after a crash of the machine all containers are new. Damage costs the damaged lines.
//
// # Concurrency
//
// Run owns all goroutines and returns when they have ended. Hooks are called from its own, one at a time, with no lock
// held. Everything else may be called from anywhere. A prober that does not return a second after its timeout is
// reported with [ErrHung] and delays no probe of another pod, but Run waits for it. What a prober leaves behind on purpose it
// announces with [Outlast]: that ends a second after Run's context, and Run waits for it, too.
//
// A prober that keeps something open, as those of grpcprobe do, is an [io.Closer], and the set closes it: Target.Prober
// says when. That delays no probe either, but Run waits for it.
//
// # Errors
//
// [Set.Sync] refuses an invalid target with an error that names the pod, the container and the field; the others take
// effect. A probe that could not be made is tried three times in a row and then counts for nothing. A store that fails is
// reported and tried again; the probes go on.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/prober and pkg/probe of Kubernetes 1.37. DIFFERENCES.md has the whole list. What a user has to
// know:
//
//   - A readiness probe runs as soon as it can, and right after the initial delay, not at the next tick of its period.
//   - A probe in flight is cancelled when its container is gone, and its result counts for nothing.
//   - Of a container that an earlier agent started there is no result before its first probe, unless the store has one.
//   - A prober that panics takes the agent with it.
//   - A changed Spec or Prober takes effect at the next probe; the kubelet keeps the first that it has seen.
//
// # When not to use it
//
// To wait until one thing is true: a prober can be called by itself. Results of single probes are not kept, only what
// they add up to; [Hooks] has each of them.
//
// # Test kit
//
// A [Func] is a fake of a container, and a [Set] runs in a bubble of testing/synctest.
package probe
