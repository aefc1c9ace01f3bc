// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package pleg follows the pods of a container runtime: it says what changed, keeps each pod as last seen, and tells
// how new that is. It changes nothing in the runtime and knows nothing of what should run.
//
// # Model
//
// [Diff] is the heart: two snapshots of a runtime in, the events between them out. A [Generator] lists the runtime
// again and again (a full relist) and hands the events to Options.Sink. Around a full relist:
//
//   - Only what changed is looked at. Where the runtime is a [cri.Inspector], the objects of a pod that changed
//     their state are read in full, several pods at a time; the details of the others are carried over.
//   - Where it is a [cri.EventStreamer], an event is a hint that lists its pod at once, and full relists become
//     rare. While the stream is down they are as frequent as without it, and each connection begins with some.
//   - Where it is a [cri.PodLister], a pod is listed alone; else a full relist stands in.
//
// Events say where to look; [Generator.Get] shows what is there. Who needs the state after something it did itself
// asks for [Generator.NewerThan] the time of it.
//
//	g := pleg.New(runtime, pleg.Options{Sink: func(events []pleg.Event) {
//		for _, e := range events {
//			queue.Add(e.PodUID)
//		}
//	}})
//	err := g.Run(ctx)
//
// A container that comes and goes between two looks is never seen.
//
// # Concurrency
//
// Run owns all goroutines and returns when they have ended. The sink and most hooks are called from its own, with no
// lock held; while they run, nothing else moves, and so nothing is dropped. All methods may be called from anywhere.
// Pods that are returned share memory with the cache: read, do not write.
//
// # Errors
//
// A list that fails leaves everything as it is and is tried again; [Generator.Healthy] complains once none has
// succeeded for Options.Threshold. A pod that cannot be read holds back its own events and no others: they come with
// the first good try. Meanwhile [Generator.Get] returns the error, [Generator.PodHealthy] names the call, and a pod
// that hangs costs no other pod more than a second's wait for a free slot. [Generator.Pods] has it as it was listed, so that
// who decides about what must not run, such as two pods of one name, or what nobody uses, does not take it for absent;
// and until a full list has been read, and after one that failed, it says that there may be others.
//
// A runtime that holds more than fits into one answer cannot be listed ([cri.ErrTooLarge]). Then the generator is not
// healthy, tries again each Options.SlowPeriod, and where the runtime is a [cri.PodLister] lists those pods one by one
// that it knows or is asked for: these are followed as ever.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/pleg and pkg/kubelet/container/cache.go of Kubernetes 1.37.
//
//   - Events of the runtime trigger relists for starts, stops and deletions, not for stops alone; the stream is reconnected for
//     ever, with back-off, instead of five times without; and while it works full relists are 10 s apart, not 1 s.
//   - Pods are inspected in parallel and apart from the full relist, with 10 s for each (the kubelet: 2 min
//     for each call): a hung pod is an error of that pod, where it stops the kubelet's only loop.
//   - Events are never dropped (the kubelet drops them when 1,000 wait) and requests for relists neither (200):
//     there is no counter of discarded events.
//   - [Generator.NewerThan] means strictly newer, also for those who wait, asks for the relist it waits for, and
//     ends with its context. The kubelet wakes waiters at exactly the time, asks for nothing, and waits for ever.
//   - [Generator.Reinspect] asks for a relist, too, since full ones may be rare.
//   - What an inspection finds counts at once: a container listed as running and read as exited has died, and one that
//     is gone when it is read is no part of the pod. The kubelet tells these events with the next relist.
//   - The last good state of a pod stays beside the error of a failed inspection, and with it the addresses that a
//     dead pod keeps. They are kept by sandbox, and go with it.
//   - Every container state is counted in [Hooks].Counted with each relist; in the kubelet a state that no
//     container is in any more keeps its last number. The duration of a relist does not include the inspections.
//   - A runtime whose list is larger than an answer may be is followed pod by pod; the kubelet's relist fails for ever.
//   - A state that the CRI does not define is unknown; the kubelet panics.
//
// ContainerChanged stays inside and sandboxes count as containers, as in the kubelet.
//
// # When not to use it
//
// For the usage of containers, and to find out what to do next: see package lifecycle. Package critest has a runtime
// to test with.
package pleg
