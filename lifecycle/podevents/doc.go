// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podevents has types for records of actions on pods and of their errors, with the reasons and messages of kubelet
// events. Its functions [Images] and [Probes] return hooks that make these records for packages images and probe. It sends no
// events to an API server; apiserver.Recorder does.
//
//	record := func(pod cri.PodIdentity, e podevents.Event) {
//		log.Print(pod.Name, ": ", e.Reason, ": ", e.Message)
//	}
//	puller, err := images.New(client, client, images.Options{Hooks: podevents.Images(record)})
//	...
//	set := probe.NewSet(probe.Options{Hooks: podevents.Probes(reconciler, record)})
//	reconciler, err := lifecycle.New(client, generator, lifecycle.Options{
//		Hooks: lifecycle.Hooks{Event: record},
//	})
//
// An [Event] is for the users of a pod. [ContainerStart], [SandboxStart] and [Sync] are for metrics, with durations and errors;
// package lifecycle passes them to its hooks. Sources: pkg/kubelet/events/event.go, pkg/kubelet/images/image_manager.go and
// pkg/kubelet/prober/prober.go.
//
// Concurrency: the hooks may be called from any goroutine, and call their [Record] from it.
//
// Errors: there are none; a nil argument panics.
//
// Test kit: none is needed; tests can call the hooks directly.
package podevents
