// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package pleg generates pod lifecycle events: it lists a container runtime, compares the list with the one before, and
// reports what changed. It keeps the last state of each pod and the time of that state. It changes nothing in the runtime
// and does not know which pods are desired.
//
// # Model
//
// [Diff] is pure: two snapshots of a runtime in, the events between them out. A [Generator] lists the runtime
// periodically (a full relist), compares, and passes the events to Options.Sink. Around a full relist:
//
//   - Only pods that changed are inspected. Where the runtime is a [cri.Inspector], the objects whose state changed are
//     read in full, several pods at a time; the details of all others are carried over.
//   - Where the runtime is a [cri.EventStreamer], an event makes the generator list that pod at once, and full relists
//     become rare. While the stream is down they are as frequent as without it, and each new connection begins with some.
//   - Where the runtime is a [cri.PodLister], one pod is listed alone; otherwise a full relist takes its place.
//
// Events say which pod to look at; [Generator.Get] returns its state. A caller that needs a state newer than its own last
// action calls [Generator.NewerThan] with the time of that action.
//
//	g := pleg.New(runtime, pleg.Options{Sink: func(events []pleg.Event) {
//		for _, e := range events {
//			queue.Add(e.PodUID)
//		}
//	}})
//	err := g.Run(ctx)
//
// A container that is created and removed between two relists is never seen.
//
// What belongs here: listing, comparing, following the event stream, and the cache of pod states. What does not: deciding
// what to do about a change (package lifecycle), and resource usage.
//
// # Concurrency
//
// Run owns all goroutines and returns when they have ended. The sink and most hooks are called from Run's goroutine, with
// no lock held. Until they return, no other relist is evaluated, so no event is dropped. All methods may be called from
// any goroutine. Returned pods share memory with the cache: read them, do not write to them.
//
// # Errors
//
// A list that fails changes nothing and is repeated; [Generator.Healthy] returns an error once none has succeeded for
// Options.Threshold. A pod that cannot be inspected delays its own events only: they follow with the first inspection that
// succeeds. Until then [Generator.Get] returns the error and [Generator.PodHealthy] names the call. A pod whose calls hang
// delays the others by at most one second, the wait for a free slot. [Generator.Pods] still contains such a pod as it was
// listed, so that a caller who looks for pods of the same name, or for unused resources, does not take it for absent. Until
// a full list has been read, and after one that failed, Pods also returns an error: there may be more pods.
//
// A runtime whose list does not fit into one answer ([cri.ErrTooLarge]) cannot be listed. The generator is then unhealthy
// and repeats the list each Options.SlowPeriod. Where the runtime is a [cri.PodLister], the pods that the generator knows
// or is asked for are listed one by one and followed as usual.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/pleg and pkg/kubelet/container/cache.go of Kubernetes 1.37. A user has to know:
//
//   - A pod whose inspection fails or hangs is an error of that pod alone, with a timeout of 10 s; call
//     [Generator.PodHealthy]. In the kubelet it blocks the only loop.
//   - [Generator.NewerThan] waits for a state that is strictly newer, and until its context ends; give it a deadline.
//   - [Generator.Pods] returns an error while there may be pods that are not in its list; remove nothing then.
//   - Events are never dropped: a sink that blocks stops the generator. The kubelet drops events when 1,000 wait.
//   - With an event stream full relists are 10 s apart. An event that the runtime does not send is noticed that late.
//
// All others are in DIFFERENCES.md. ContainerChanged is not reported and sandboxes count as containers, as in the kubelet.
//
// # When not to use it
//
// For resource usage of containers, and to decide what to do next: see package lifecycle.
//
// Test kit: package critest has a runtime in memory and in virtual time.
package pleg
