// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package probe asks containers how they are, again and again, and counts the answers until they mean something. It
// does not know pods, and restarts nothing: package podprobe makes targets of a pod and says what a result does to it.
//
// # Model
//
// A [Prober] asks once: [HTTP], [TCP], [Exec], gRPC in package grpcprobe, or any [Func]. A [State] is one probe as it
// stands: pure, with the time as an argument. It holds the thresholds, the initial delay, what waits for the startup
// probe, and what a new container begins with. A [Set] puts both to work:
//
//	set := probe.NewSet(probe.Options{Store: "/var/lib/agent/probes", Hooks: probe.Hooks{
//		Changed: func(k probe.Key, v probe.Value) { queue.Add(k.PodUID) },
//	}})
//	go func() { done <- set.Run(ctx) }()
//	…
//	err := set.SyncPod(uid, targets) // all of a pod's, whenever one has changed
//
// [Set.Sync] and, for one pod, [Set.SyncPod] are level-triggered: they say all that is wanted, and how each container
// is now. What an answer led to has to come back with them: when a startup probe has succeeded, the container's other
// probes are asked once the targets say Started. A container without a target for a startup probe needs no such word.
//
// # Cost
//
// A probe at rest is an entry in a heap, less than 800 bytes with its names, and no goroutine. Those in flight, one
// goroutine each, are at most Options.Parallel; the others wait in the order in which they became due, and are
// counted. What becomes due within [MinPeriod] begins together: a probe is never early, and up to that late. A probe
// ends as soon as its container is gone. After the start of the agent first probes are spread over their period. Sync
// looks at every target, SyncPod only at those of its pod.
//
// # Restart of the agent
//
// With Options.Store what was found is kept in a file, by container ID. The next agent begins with it, so that
// nothing that is ready stops being so and no startup probe runs twice. The file is never synced to the disk: it only
// has to outlive the agent, as after a crash of the machine all containers are new. Damage costs the damaged lines.
//
// # Concurrency
//
// Run owns all goroutines and returns when they have ended. Hooks are called from its own, one at a time, with no lock
// held. Everything else may be called from anywhere. A prober that does not return a second after its timeout is
// reported with [ErrHung] and delays nobody, but Run waits for it. What a prober leaves behind on purpose, it says with
// [Outlast]: that ends a second after Run's context, and Run waits for it, too.
//
// A prober that keeps something open, as those of grpcprobe do, is an [io.Closer], and the set closes it:
// Target.Prober says when. That delays nobody either, but Run waits for it.
//
// # Errors
//
// A target that makes no sense is refused by [Set.Sync] with the name of the pod, the container and the field; the
// others go on. A question that could not be put is tried three times in a row and then counts for nothing. A store
// that fails is reported and tried again; the probes go on.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/prober and pkg/probe of Kubernetes 1.37. How each prober differs is said with its type.
//
//   - Readiness is asked as soon as the container can be asked, and right after the initial delay. The kubelet waits
//     for the next tick of the period, or for somebody to look at the status. Startup and liveness stay on the ticks,
//     as an early first failure would count.
//   - A probe in flight is cancelled when its container is gone or no longer to be asked, and what it says counts for
//     nothing. In the kubelet it goes on to its timeout, and counts towards the next container.
//   - A failure that was noted because a container did not run yet is taken back when it does; the kubelet's liveness
//     keeps it until a probe succeeds.
//   - Nobody exits: a probe stays, at rest, until it is no longer wanted, also when its container will not run again
//     or its pod is being deleted, and so does what it last said. In the latter case that is Success for startup and
//     liveness, as for the kubelet.
//   - A changed Spec or Prober holds from the next probe on; the kubelet keeps the first it has seen.
//   - A start that lies in the future delays a probe by its initial delay, not until then.
//   - A prober that does not return keeps its own probe from being asked, as in the kubelet, but is reported. One that
//     panics takes the agent with it; the kubelet logs it and goes on.
//   - Of a container that an earlier agent started nothing is said before it is asked, unless the store knows it. As in
//     the kubelet, a startup probe whose container counts as started says Success; there for sidecars alone.
//   - Periods may be as short as [MinPeriod], and there is a limit on probes in flight.
//
// As in the kubelet, failures before a crash count towards the threshold of the next container.
//
// # When not to use it
//
// To wait until one thing is true: a prober can be called by itself. Answers are not kept, only what they add up to;
// [Hooks] has each of them.
package probe
