// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podevents has the records of actions on pods and of their errors, with the reasons and in the words of the kubelet, and the hooks of
// images and probe that make such records. It sends no event to an API server: apiserver.Recorder does.
//
// # Model
//
// An [Event] is for the users of a pod. [ContainerStart], [SandboxStart] and [Sync] have durations and errors, mostly for metrics. Package
// lifecycle passes them to its hooks; [Images] and [Probes] return hooks for the engines that know no pods:
//
//	record := func(pod cri.PodIdentity, e podevents.Event) { recorder.PodEvent(pod, e) }
//	puller, err := images.New(client, client, images.Options{Hooks: podevents.Images(record)})
//	set := probe.NewSet(probe.Options{Hooks: podevents.Probes(reconciler, record)})
//
// # Concurrency
//
// The hooks may be called from any goroutine, and call [Record] from there. Sources: pkg/kubelet/events/event.go,
// pkg/kubelet/images/image_manager.go and pkg/kubelet/prober/prober.go.
//
// Test kit: none is needed; the hooks can be called by hand.
package podevents
