// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package lifecycle brings pods to where their specs want them. It neither reads manifests (package source does), nor watches
// the runtime (an [Observer] does, such as *pleg.Generator), nor talks to an API server.
//
// # Model
//
// A [Reconciler] has one goroutine for each pod, which waits for an observation newer than what it did last, decides, acts,
// publishes the status, and sleeps until something changes. A call that hangs delays its own pod only. The parts are rooms of
// their own: package plan decides, podstatus words the status, executor does what was decided, podapi validates, podset
// merges what several sources want, and poddir keeps what is on disk. What belongs here is what several pods have to do with
// each other: names, owners, orphaned pods, and how many pods start at a time.
//
// What can be read back from the runtime is remembered nowhere else: attempts, back-offs and grace periods are in its objects
// and their annotations. What no runtime tells is in record.json in the directory of the pod (Options.Dirs.Pods). So an agent
// that is killed at any moment and started again continues where it was, and touches no container that runs as it should.
//
//	generator := pleg.New(runtime, pleg.Options{})
//	reconciler, err := lifecycle.New(runtime, generator, lifecycle.Options{Dirs: lifecycle.Dirs{Pods: "/var/lib/agent/pods"}})
//	...
//	err = reconciler.Set(lifecycle.PodSet{Source: "file", Pods: pods}) // now and whenever they change
//	...
//	wg.Go(func() { _ = generator.Run(ctx) })
//	err = reconciler.Run(ctx) // at once, when another agent has Dirs.Pods
//
// A part that is forgotten (the Run of the generator, that of the probes, the calls of [Reconciler.Changed] where the
// Observer is no [Notifier]) is told to Hooks.Error and the log within 10 s.
//
// Pods that need what this version does not have (devices), or what the options leave out, are refused by [Reconciler.Set] with an error
// that names the field, and fail with the kubelet's reason or PodFeatureUnsupported; they are never run without it.
//
// # Starts
//
// The number of pods that are started at the same time is bounded: by Options.Pacing.Parallel or else by what the machine can do, as
// it grows while starts wait and the CPU is idle. A start that takes long, or that waits for an image, releases its start
// slot. The CPU quota of a pod's cgroup is in force while no container of the pod is being started, see [PodCgroups]: at the
// latest Options.Pacing.StartSlotTimeout after the first of a start runs.
//
// # Orphaned pods
//
// An orphaned pod, which only the runtime has, is taken down once every source has reported completely, if it carries the
// agent's own [LabelOwner]. Others on the same runtime are left alone. So is a pod that a source wants and Set refuses. One
// that has the name of a wanted pod, such as the former version of a manifest, is taken down first, and the wanted one waits:
// its status says for whom.
//
// What is not known yet may be there, and may run. As long as the [Observer] has no list of all pods, before its first and
// after one that failed, no orphaned pod and no directory is removed, [Reconciler.MayRun] is true of every pod, and
// [Reconciler.Drain] does not return. A runtime may hold more than it can list ([cri.ErrTooLarge]): wanted pods are then read
// and started one by one all the same, and Hooks.Error says once a minute what to do.
//
// The owner of a pod is Options.Owner, or an ID that is kept in Options.Dirs.Pods. Without either an agent takes down what it
// ran itself, and no orphaned pod. Where the runtime has containers of a wanted pod that carry another mark or none, another
// agent runs the pod: that is an error of the pod, and nothing is done. Cgroups carry no mark: two agents of one machine need
// different roots for them.
//
// # Admission
//
// [Options.Admit] decides whether a pod runs on this node at all. Each pod is asked about once, the oldest first, before
// anything is made of it; the answer is kept with what else is known of the pod. A rejected pod fails, and nothing is made.
//
// # Eviction
//
// [Reconciler.Evict] ends a pod that is still wanted, or holds it back for a while. It outlives the agent. Where a disk is full,
// [Reconciler.Trim] comes first: of pods that have terminated or are held back nothing stays in the runtime, and their statuses stay.
//
// # Network
//
// As long as the runtime says that the network of pods is not ready ([cri.ConditionNetworkReady]), only pods on the network of the
// host are started. The others wait and say so, and start as soon as it is. A runtime that does not answer stops nothing.
//
// # Volumes
//
// What a pod has beside its containers is made by [Options.Volumes]: it is ready before the sandbox is created, and is given
// back when nothing of the pod runs, before the directory and the cgroup of the pod are removed. One that hangs delays its pod,
// which has no start slot meanwhile; one that is not given back keeps the pod known.
//
// # Sources
//
// A [PodSet] is all that one source wants, and the type that packages source and podstore have, too. What several sources
// want is merged: a UID belongs to the source that listed it first, for as long as that source lists it. Set tells the
// others. When it gives the pod up, that is taken down before a pod of the UID from another source is started. Dirs.Pods
// remembers the source, as long as Options.Sources names it. So a pod that moves from one source to another with its UID
// starts anew.
//
// # Concurrency
//
// All methods of a Reconciler may be called from any goroutine; Run once. Hooks are called as [Hooks] says.
//
// # Errors
//
// What is done to a pod and what goes wrong is told to Hooks.Event, by the names and in the words of the kubelet's events.
// What a failed hook printed is not in it, but in the log, in what Hooks.Error gets, and in the message of the waiting
// container: it may have secrets in it. A failure is told to Hooks.Error as well, and is tried again after 1 s, doubling to
// 10 s, plus up to half of it at random; every one to one and a half seconds while the runtime is away.
//
// # Differs from the kubelet
//
// All differences are in DIFFERENCES.md. A user has to act on these:
//
//   - A change of a pod that an API server would refuse is refused by Set, with the field; the kubelet mostly ignores it.
//   - Logs are kept below Options.Spec.LogRoot, and not at all without it; in the kubelet below /var/log/pods.
//   - The status published last is kept on disk: a job of a manifest that has completed stays completed.
//   - Sandboxes that are not ready, terminated containers except the newest of each name, with their logs, and the logs of
//     removed pods are removed at once, not by a garbage collector.
//   - The CPU quota of a pod's cgroup is in force once its containers run; in the kubelet before the sandbox is created.
//     podtree.Options.QuotaFromStart is the kubelet's way.
//
// Test kit: package critest has a runtime in memory and in virtual time, whose Example NodeInMemory runs pods.
package lifecycle
