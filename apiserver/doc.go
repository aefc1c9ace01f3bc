// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package apiserver is the side of an agent that talks to its API server about pods: it watches the pods of the node and the objects that
// these refer to, requests tokens and certificates for them, keeps the mirror pods of static pods, sends statuses and events, and asks for
// reviews of clients. It runs no pod and reports no Node: packages lifecycle and heartbeat do.
//
// # Model
//
// A [Source] has one client of the API server, which its parts share. [Source.Pods] are the pods of the node, as a lifecycle.PodSet
// of the source "api" that the same code handles as those of package source:
//
//	source, err := apiserver.New(config, apiserver.Options{NodeName: "edge-1"})
//	err = source.Pods().Run(ctx, func(u apiserver.Update) {
//		err := reconciler.Set(store.Update(u.PodSet))
//		...
//	})
//
// The set is level-triggered: it is all pods of the node, after the first list and after each change, and a watch that was cut
// costs time and loses nothing. Every 12 to 15 minutes it comes from a list of the API server's own store. Nothing is said before
// the first list, so that an agent that boots without its API server goes on with what package podstore has; nor is anything while
// the API server is away. Options.WaitForNode keeps the first list back until the Node is registered with its labels,
// for an agent that admits pods by them. A pod that is deleted and created again under its name is another pod by its UID, and
// both changes are in one set.
//
// [Merge] decides what of a list is to be run. No annotation makes a pod static: kubernetes.io/config.source is "api" whatever
// a user wrote, and pods with kubernetes.io/config.mirror are not run. Priority alone makes a pod of the API server critical.
//
// [Mirrors] keeps a mirror pod for each static pod: [PlanMirrors] decides, by name and by the hash in the annotation
// kubernetes.io/config.mirror, and Mirrors.Run does it. It gets the static pods from [Mirrors.Set], after the Reconciler. A
// status of a static pod goes to its mirror.
//
// [Objects] has the objects that pods refer to: config maps and secrets of variables, which are read when a container starts, those that
// volumes show, which are watched by name while a volume shows them, because a node may not list all of them, services, claims, persistent
// volumes, CSI drivers, runtime classes and trust bundles. They are what lifecycle.Options.Objects, volume.Options and intree.Options take:
//
//	objects, err := source.Objects(apiserver.ObjectsOptions{})
//	lifecycleOptions.Objects, intreeOptions.Objects = objects, objects.Volumes()
//	volumeOptions.Claims, volumeOptions.Watcher = objects, objects
//	err = objects.Run(ctx)          // and objects.Retain(pods) whenever the pods change
//
// With [ObjectsOptions].Keep and Services the objects that containers and volumes need are also on disk, for an agent that is started while
// the API server is unavailable. [Retainer] calls [Objects.Retain] for an agent whose pods come from a Source and a Reconciler.
// [Tokens] requests tokens that are bound to a pod, and [Accounts] those of credential provider plugins. [Objects.EditNode] and
// [Objects.EditCSINode] are for csi.NodeUpdater, and [Expansions.Expanded] is for volume.Hooks.Expanded.
// [TokenReviews] and [AccessReviews] are for package auth.
// [Statuses] sends what the Reconciler says of its pods, one PATCH for each that differs from what is watched, and removes deleted
// pods of which nothing is left; package statuspatch decides what is sent. [Recorder] sends events, as those of a kubelet. Both are
// the hooks of a Reconciler:
//
//	statuses, err := source.Statuses(apiserver.StatusesOptions{Pods: reconciler.Pods, MayRun: reconciler.MayRun})
//	recorder := source.Recorder(apiserver.RecorderOptions{})
//	hooks := lifecycle.Hooks{
//		Status: statuses.Changed, Left: statuses.ResourcesReleased, Gone: statuses.PodRemoved, Event: recorder.PodEvent, Refused: recorder.PodRefused,
//	}
//
// The Reconciler is made with its hooks: hand in functions that call it, and run Statuses once it is there.
//
// The credentials of the agent are in package cert. Whether a pod may run is decided by packages lifecycle and admission.
//
// # Concurrency
//
// Constructors start nothing. Each Run is called once, owns its goroutines and calls its sink and hooks from them, with no lock
// held; all other methods may be called at any time. Pods are shared and must not be changed.
//
// # Errors
//
// New names what is missing in its options. What fails later is told to Hooks and tried again, after 1 s and then
// less often; Run returns nil when its context ends. A pod that cannot be used is left out and named in [Update].Errs; the others
// are not affected. Of more than 10,000 pods those that have terminated are left out first, then the newest, and [Pods.Err] returns
// how many. Of terminated pods that are not deleted the newest 1,000 are in an Update. An object that does not exist is an error that wraps
// [fs.ErrNotExist]; any other error of Objects means that the API server could not be asked. No error has the data of a secret or a token.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/config, pod, status, and util/manager with secret, configmap and token of Kubernetes 1.37. A user has to know:
//
//   - The annotation kubernetes.io/config.seen is not set, as it would change with each restart of the agent; it is removed.
//   - The pods of the node are listed anew every 12 to 15 minutes, from the API server's own store.
//   - A static pod that refers to objects of the API has no mirror, which is told once; the kubelet asks for it at each sync.
//   - A mirror that was deleted is created again at once, also that of a static pod that has terminated.
//   - Mirrors of no static pod are deleted by UID, once all sources of static pods have reported completely.
//
// All others are in DIFFERENCES.md.
//
// Test kit: package apiservertest has an API server in memory.
package apiserver
