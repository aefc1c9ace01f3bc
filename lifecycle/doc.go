// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package lifecycle runs the pods of a node on a CRI runtime: it creates their sandboxes and containers, restarts containers,
// publishes the status of each pod, and tears down pods that no source lists any more. It does not read manifests, talk to an API
// server or watch the runtime; packages source, apiserver and pleg do.
//
//	runtime, err := remote.Dial("unix:///run/containerd/containerd.sock", remote.Options{})
//	...
//	generator := pleg.New(runtime, pleg.Options{}) // the Observer: reports changed pods
//	reconciler, err := lifecycle.New(runtime, generator, lifecycle.Options{
//		Dirs: lifecycle.Dirs{Pods: "/var/lib/agent/pods"},
//		Hooks: lifecycle.Hooks{StatusChanged: func(pod *corev1.Pod, status *corev1.PodStatus) {
//			log.Print(pod.Name, " ", status.Phase)
//		}},
//	})
//	...
//	wg.Go(func() { _ = generator.Run(ctx) })
//	wg.Go(func() { runErr = reconciler.Run(ctx) }) // returns at once if another agent uses Dirs.Pods
//	err = reconciler.Set(lifecycle.PodSet{Source: "file", Pods: pods}) // again whenever the pods change
//
// # Model
//
// A [Reconciler] has a goroutine, called worker, for each pod. In each sync the worker reads the observed state of the pod from
// the [Observer], calls plan.Decide for the next actions, executes them, and publishes the status. A runtime call that hangs
// delays its own pod only. Options.Devices reserves devices before Options.Volumes sets up volumes and the sandbox is created.
//
// Restart counts, back-offs and grace periods are stored in annotations of containers. State that the runtime cannot store, such
// as a terminal phase, is in record.json in the pod's directory below Dirs.Pods. So an agent can be killed at any time: after a
// restart it continues, and leaves running containers alone.
//
// # Sources and orphaned pods
//
// A source, such as a directory of manifests or an API server, passes all of its pods to [Reconciler.Set]. A UID belongs to the
// first source that lists it. A pod that is invalid, or needs a feature that is not available, is refused and fails with the
// kubelet's reason.
//
// An orphaned pod exists in the runtime, but no source lists it. It is torn down if its [LabelOwner] is that of this agent, once
// every source in Options.Sources has reported all of its pods and the runtime was listed completely. Before that, it is torn
// down only if a listed pod has its name: the listed pod waits for it.
//
// A listed pod whose containers have the label of another agent is not changed, which is an error of the pod. Without
// Options.Owner and Dirs.Pods, an agent does not recognize the orphaned pods of its previous process.
//
// # Concurrency and errors
//
// All methods may be called from any goroutine; Run only once. See [Hooks] for the goroutines of hooks.
//
// A failed sync is retried after 1 s, doubling to 10 s, with jitter. The error is passed to Hooks.Error, and to Hooks.Event as a
// kubelet event. The output of container lifecycle hooks is not in events, because it may contain secrets. Hooks.Error also
// reports, within 10 s, that the program does not run the generator or the probes.
//
// # Differs from the kubelet
//
// DIFFERENCES.md has all differences. A user has to know these:
//
//   - Set refuses a change of a pod that an API server would refuse. The kubelet mostly ignores it.
//   - Container logs are kept only if Options.Spec.LogRoot is set.
//   - The last status is kept on disk: a completed job of a manifest is not run again.
//   - Stopped sandboxes, all but the newest terminated instance of a container, and logs of removed pods are removed at once.
//   - The CPU quota of a pod is enforced after its containers have started, unless podtree.Options.QuotaFromStart is set.
//
// Test kit: package critest has a runtime in memory. Example NodeInMemory runs pods on it.
package lifecycle
