// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package apiserver connects an agent to its API server for pods. It watches the pods of the node and the objects that they refer
// to, requests tokens and certificates, maintains mirror pods, and sends statuses and events. It runs no pods and reports no
// Node: packages lifecycle and heartbeat do that.
//
//	source, err := apiserver.New(config, apiserver.Options{NodeName: "edge-1"})
//	objects, err := source.Objects(apiserver.ObjectsOptions{})
//	statuses, err := source.Statuses(apiserver.StatusesOptions{Pods: reconciler.Pods, MayRun: reconciler.MayRun})
//	recorder := source.Recorder(apiserver.RecorderOptions{})
//	hooks := lifecycle.Hooks{
//		StatusChanged: statuses.Changed, ResourcesReleased: statuses.ResourcesReleased, PodRemoved: statuses.PodRemoved,
//		Event: recorder.PodEvent, PodRefused: recorder.PodRefused,
//	}
//	go objects.Run(ctx) // likewise statuses.Run and recorder.Run
//	err = source.Pods().Run(ctx, func(u apiserver.Update) {
//		err := reconciler.Set(store.Update(u.PodSet))
//		...
//	})
//
// The Reconciler needs the hooks, and Statuses needs the Reconciler: pass functions as hooks that call Statuses once it exists.
// [NewParts] connects all components for a usual agent.
//
// # Components
//
//   - [Pods] calls its sink with the complete set of pods after the first list and after each change. Before the first list,
//     and while the API server is unavailable, it does not. [Merge] selects the pods to run. Every 12 to 15 minutes the pods
//     are listed again.
//   - [Mirrors] creates and deletes mirror pods. [PlanMirrors] decides, by name and config hash.
//   - [Objects] reads and watches config maps, secrets, services, claims, volumes, CSI drivers, runtime classes and trust
//     bundles. With CacheDir and ServicesFile they are also on disk. [Retainer] drops unused objects.
//   - [Tokens] and [Accounts] request service account tokens. [TokenReviews] and [AccessReviews] are for package auth.
//   - [Statuses] sends one PATCH per changed status and removes terminated pods. [Recorder] sends events as a kubelet does.
//   - [Objects.EditNode] and [Objects.EditCSINode] are for csi.Node, and [Expansions] reports expanded volumes.
//
// # Concurrency
//
// Constructors start nothing. Each Run is called once, owns its goroutines and calls its sink and hooks from them with no lock
// held. All other methods may be called at any time. Pods are shared and must not be changed.
//
// # Errors
//
// New names missing options. Later errors are passed to Hooks, and the request is retried with a back-off from 1 s. Run returns
// nil when its context ends. An invalid pod is omitted and named in [Update].Errs. Of more than 10,000 pods, terminated and then
// new ones are omitted; [Pods.Err] reports it. The error for a missing object wraps [fs.ErrNotExist]. No error contains a secret
// or a token.
//
// # Differs from the kubelet
//
// The model is Kubernetes 1.37: pkg/kubelet/config, pod, status, and util/manager.
//
//   - The annotation kubernetes.io/config.seen is removed.
//   - A static pod that refers to API objects has no mirror pod, which is reported once.
//   - A deleted mirror pod is recreated at once, also for a terminated static pod.
//   - Orphaned mirror pods are deleted by UID, after all static sources are complete.
//
// DIFFERENCES.md lists all others. Test kit: package apiservertest has an API server in memory.
package apiserver
