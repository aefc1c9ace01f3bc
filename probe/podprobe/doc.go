// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podprobe translates between pods and probes: it makes the targets of a [probe.Set] out of a pod, and says what
// the results mean for its containers. All of it is pure but for the probers it makes, which connect when they are asked
// to. It does not write a status, restart a container or send an event; whoever owns the pods does.
//
// # Model
//
// [Targets] has one target for each probe of the containers and sidecars of a pod, in the kubelet's order. Init
// containers that end and ephemeral containers have none. It is called with the status as it is now, whenever that
// changes, for [probe.Set.Sync] is level-triggered.
//
// The results come back as [Results], and each container is judged by them: [Started], [Ready] and [MustKill], with
// [GracePeriod] for how long it may take to end.
//
//	targets, errs = podprobe.Targets(pod, &pod.Status, targets, podprobe.Options{Execer: podprobe.CRI(runtime), GRPC: grpc})
//	…
//	status.Ready = podprobe.Ready(pod, c, status, before, set.Result)
//
// # Errors
//
// A probe that can never be asked, because its port has no such name or its host is no host, gives an error that
// names the pod, the container, the probe and the field. It has a target all the same, and fails: a container whose
// health nobody can see is not ready.
//
// # Differs from the kubelet
//
//   - A named port that the container does not have, a number that is no port and a missing handler are failures. The
//     kubelet throws such probes away, so that they hold a container unready, or alive, for ever without a word in its
//     status; [Options.KubeletErrors] does as it does.
//   - A pod without an IP address is not probed over the network. The kubelet would connect to itself.
//   - The mode TLS of gRPC probes needs no feature gate.
package podprobe
