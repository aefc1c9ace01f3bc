// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package pleg lists a container runtime periodically and reports pod lifecycle events (container started, died, removed), like
// the kubelet's PLEG. It caches the last state of each pod. It changes nothing in the runtime and does not decide how to react to
// an event: see package lifecycle.
//
//	g := pleg.New(runtime, pleg.Options{Sink: func(events []pleg.Event) {
//		for _, e := range events {
//			queue.Add(e.PodUID)
//		}
//	}})
//	go g.Run(ctx)
//	pod, err := g.Get(podUID)                           // the cached state
//	pod, err = g.NewerThan(ctx, podUID, lastActionTime) // waits for a relist
//
// # Model
//
// [Diff] is a pure function: it takes two snapshots of a runtime and returns the events between them. A [Generator] lists the
// whole runtime periodically (a full relist), compares the list with the previous one, and passes the events to Options.Sink:
//
// - If the runtime implements [cri.Inspector], the generator inspects only the containers and sandboxes whose state changed. It copies the details of all other objects from the previous state.
// - If the runtime implements [cri.EventStreamer], each runtime event triggers a relist of its pod, and full relists become rare. While the stream is broken, full relists return to the short period.
// - If the runtime implements [cri.PodLister], one pod can be listed alone. Otherwise a full relist replaces the relist of a pod.
//
// A container that is created and removed between two relists is never seen.
//
// # Concurrency
//
// Run owns all goroutines and returns when they have returned. It calls the sink and most hooks from its own goroutine, with no
// lock held. It evaluates no other relist until they return, so no event is dropped. All methods may be called from any
// goroutine. Returned pods share memory with the cache and must not be modified.
//
// # Errors
//
// A failed full list changes nothing and is repeated. [Generator.Healthy] returns an error once no list has succeeded for
// Options.Threshold. If a pod cannot be inspected, only its own events are delayed; [Generator.Get] returns the error and
// [Generator.PodHealthy] names the failing call. [Generator.Pods] still contains this pod as listed.
//
// A runtime whose list exceeds the maximum message size ([cri.ErrTooLarge]) makes the generator unhealthy. If the runtime is a
// [cri.PodLister], known and requested pods are then listed one by one.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/pleg and pkg/kubelet/container/cache.go of Kubernetes 1.37. DIFFERENCES.md has all differences. The
// most important ones:
//
// - A failed or hung inspection concerns its pod alone, with a timeout of 10 s. In the kubelet it blocks the only loop.
// - [Generator.NewerThan] waits for a strictly newer state, until its context ends.
// - [Generator.Pods] returns an error while its list may be incomplete. Callers must not remove anything then.
// - Events are never dropped: a sink that blocks stops the generator. The kubelet drops events when 1,000 wait.
// - While events are streamed, full relists are 10 s apart. A runtime event that is lost is noticed that late.
//
// Test kit: package critest has a runtime in memory and in virtual time.
package pleg
