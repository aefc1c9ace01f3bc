// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podprobe converts the probes of a pod spec to targets of a [probe.Set], and decides by the probe results which
// containers have started, are ready, or must be killed. It does not write a pod status, restart a container or record an event:
// its caller does.
//
//	targets, errs = podprobe.Targets(pod, &pod.Status, targets, podprobe.Options{Execer: podprobe.CRI(runtime), GRPC: grpc})
//	…
//	status.Ready = podprobe.Ready(pod, c, status, before, set.Result)
//
// # Model
//
// [Targets] returns a target for each probe of the regular containers and sidecars of a pod, in the kubelet's order. Other init
// containers and ephemeral containers have no probes. It is called with the current status after each change of the pod; [Pods]
// does this for many pods.
//
// Results come back as [Results]. The pure functions [Started], [Ready] and [MustKill] decide by them about each container.
//
// # Concurrency
//
// All functions may be called from any goroutine. Only [CRI] starts goroutines, for the calls of exec probes. Two calls of [Pods]
// that change one pod must not overlap.
//
// # Errors
//
// A probe that can never run, for example because its named port does not exist, yields an error that names the pod, the
// container, the probe and the field. It still has a target, which always fails with this error: a container that cannot be
// probed is not ready.
//
// # Differs from the kubelet
//
// DIFFERENCES.md has all differences. The most important ones:
//
// - An unknown named port, an invalid port number and a missing handler are probe failures. The kubelet discards such probes, and the status does not show why the container is not ready.
// - Exec probes end at their deadline even if the runtime hangs: see [CRI].
//
// Test kit: a [probe.Func] in place of a prober, a func in place of [Results], and package critest for the runtime.
package podprobe
