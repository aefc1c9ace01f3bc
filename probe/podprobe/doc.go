// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podprobe translates between pods and probes: it makes the targets of a [probe.Set] out of a pod, and says what
// the results mean for its containers. It does not write a status, restart a container or record an event; whoever owns
// the pods does.
//
// # Model
//
// [Targets] has one target for each probe of the regular containers and sidecars of a pod, in the kubelet's order. It is
// called with the status as it is now, whenever that changes, for [probe.Set.Sync] is level-triggered. [Pods] does so pod
// by pod. Other init containers and ephemeral containers have no probes.
//
// The results come back as [Results], and each container is judged by them: [Started], [Ready] and [MustKill], with
// [GracePeriod] for how long it may take to terminate. These are pure functions.
//
//	targets, errs = podprobe.Targets(pod, &pod.Status, targets, podprobe.Options{Execer: podprobe.CRI(runtime), GRPC: grpc})
//	…
//	status.Ready = podprobe.Ready(pod, c, status, before, set.Result)
//
// # Concurrency
//
// Everything may be called from any goroutine, and nothing here starts one but [CRI], for the calls of exec probes. Two
// calls of [Pods] that change the same pod must not overlap.
//
// # Errors
//
// A probe that can never be made, because its port has no such name or its host is invalid, gives an error that names
// the pod, the container, the probe and the field. It has a target all the same, and fails with that error: a container
// that cannot be probed is not ready.
//
// # Differs from the kubelet
//
// DIFFERENCES.md has the whole list. What a user has to know:
//
//   - A named port that the container does not have, a number that is no port and a missing handler are failures. The
//     kubelet discards such probes, so that the container stays unready, or alive, without a word in its status.
//   - Exec probes end at their deadline, whatever the runtime does: see [CRI].
//
// # Test kit
//
// A [probe.Func] in the place of a prober, a func in the place of [Results], and package critest for the runtime.
package podprobe
