// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package lifecycle brings pods to where their specs want them: it decides what a pod needs next, does it through a
// cri.Runtime, and says what has become of it. It neither reads manifests (package source does), nor watches the
// runtime (an [Observer] does, such as *pleg.Generator), nor talks to an API server.
//
// # Model
//
// [Plan] is a pure function: a pod's spec, what the runtime has of it, and the time give the [Actions] that bring the
// two together. [Status] and [Phase] are pure as well: they say how an API user sees the same state. The status that a
// Reconciler publishes differs in two ways, as that of the kubelet does: a final phase is held back while something of
// the pod is up, and containers of which nobody will see the end any more are given one. What can be read back from the
// runtime is remembered nowhere else: attempts, back-offs and grace periods are in its objects and their annotations.
// What no runtime tells is in record.json in the directory of the pod (Options.PodRoot): the status published last,
// postStart hooks that have not ended, what a resize has brought about. So an agent that is killed at any moment and
// started again goes on where it was, and touches no container that runs as it should.
//
// A [Reconciler] is the loop around them. It has one goroutine for each pod, which waits for an observation newer
// than what it did last, plans, acts, publishes the status, and sleeps until something changes. A call that hangs
// delays its own pod only. The number of pods that are being started at once is bounded: by Options.Parallel or else by
// what the machine can do, as it grows while starts wait and the CPU is idle, and goes back when none waits. A start that
// takes long, or that waits for an image, releases its start slot to the next. The CPU quota of a pod's cgroup is in force
// while no container of the pod is being started, see [PodCgroups]: at the latest Options.SlowAfter after the first of a
// start runs, and an agent that dies before is followed by one that sees to it.
//
//	generator := pleg.New(runtime, pleg.Options{})
//	reconciler, err := lifecycle.New(runtime, generator, lifecycle.Options{PodRoot: "/var/lib/agent/pods"})
//	...
//	err = reconciler.Set(lifecycle.PodSet{Source: "file", Pods: pods}) // now and whenever they change
//	...
//	wg.Go(func() { _ = generator.Run(ctx) })
//	err = reconciler.Run(ctx) // at once, when another agent has PodRoot
//
// A part that is forgotten (the Run of the generator, that of the probes, the calls of [Reconciler.Changed] where the
// Observer is no [Notifier]) is told to Hooks.Error and the log within 10 s.
//
// # What is in it and what is not yet
//
// Containers of every kind, init containers, sidecars and ephemeral ones too, with restart policies and rules,
// CrashLoopBackOff, pulls with secrets and back-off, probes, hooks, changes of the spec, in-place resize, deadlines, grace
// periods that only get shorter, the order in which sidecars end, termination messages, hosts files, user namespaces,
// images as volumes, sandboxes. Pods that need more (other volumes, devices) are refused by [Reconciler.Set] with an error
// that names the field; they are never run without it.
//
// # Orphans
//
// A pod that only the runtime knows is taken down once every source has reported completely, if it carries the
// agent's own [LabelOwner]. Others on the same runtime are left alone. So is a pod that a source wants and Set refuses,
// as one may that an agent with other options started. One that has the name of a wanted pod, such as the former version
// of a manifest, is taken down first, and the wanted one waits: its status says for whom, and if the runtime does not
// answer about that one, Hooks.Error and an event say which call it is.
//
// What is not known yet may be there, and may run. A pod that was listed and could not be looked into counts as one that
// is there. As long as the [Observer] has no list of all, before its first and after one that failed, no orphaned pod
// and no directory is removed, [Reconciler.MayRun] is true of every pod, and [Reconciler.Drain] does not return.
//
// A runtime may hold more than it can list ([cri.ErrTooLarge]). Wanted pods are then read and started one by one all the
// same; a former pod of the same name is found by its record below Options.PodRoot, so without one it is not found.
// Hooks.Error says once a minute what to do.
//
// Whose a pod is says Options.Owner, or an ID that is kept in Options.PodRoot. Without either an agent takes down what it
// ran itself, and no orphan; such agents on one runtime must not be given the same pods. Where the runtime has containers
// of a wanted pod that carry another mark or none, another agent runs the pod: that is an error of the pod, told and
// tried again, and nothing is done. An agent that has lost its PodRoot has a new ID and finds its own pods so; with an
// Owner it does not. Cgroups carry no mark: two agents of one machine need different roots for them.
//
// # Sources
//
// A UID belongs to the source that wanted it first, for as long as it does. Set tells the others. When it gives the pod
// up, that is taken down before a pod of the UID from another source is started: containers of one are never taken over
// for the other. PodRoot remembers the source, as long as Options.Sources names it. So a pod that moves from one source
// to another with its UID starts anew.
//
// # Errors
//
// What is done to a pod and what goes wrong is told to Hooks.Event, by the names that the kubelet's events have. What a
// failed hook printed is not in it, but in the log, in what Hooks.Error gets, and, as in the kubelet, in the message of the
// waiting container: it may have secrets in it.
//
// A failure is told to Hooks.Error as well, with the identity of the pod, shows as the reason of the waiting container,
// and is tried again after 1 s, doubling to 10 s, plus up to half of it at random; every one to one and a half seconds
// while the runtime is away.
//
// # Differs from the kubelet
//
//   - CrashLoopBackOff survives a restart of the agent: it is kept in an annotation of the container.
//   - A container that was created but never started is started; the kubelet creates another and counts a restart.
//   - A start that containerd gave up, because the agent died meanwhile, is no end of the container; in the kubelet it is
//     one with code 128, which fails a pod that is not restarted.
//   - A change of a pod that an API server would refuse is refused by Set, with the field; the kubelet takes what it gets
//     and mostly does nothing about it.
//   - Logs are kept where Options.Spec.LogRoot says, and without it nowhere; the kubelet has /var/log/pods.
//   - A small CPU limit does not slow a start down: the quota of the pod's cgroup comes into force when the containers run;
//     in the kubelet before the sandbox is made. podtree.Options.QuotaFromStart is the kubelet's way.
//   - As many pods are started at a time as keep the machine busy; the kubelet starts all at once.
//   - Failed syncs are tried again sooner (the kubelet waits 10 to 15 s).
//   - A pod that waits for another one of its name publishes for whom; the kubelet publishes nothing of it.
//   - Where the pods of the runtime cannot be listed because there is too much to say, wanted pods are started all the same;
//     the kubelet works on no pod.
//   - Orphans get the grace period that was noted when they were made; the kubelet gives them 2 s.
//   - Where the grace period of a pod is shorter than 2 s, hooks and sidecars have 2 s all the same, and of a pod that
//     is not deleted and has none no hook is run; in the kubelet a pod that ends has 1 s for them.
//   - A running container whose name is no longer in the spec is stopped.
//   - A container that cannot be stopped keeps its sandbox, and is killed at the sixth attempt; the kubelet stops the sandbox
//     at the first.
//   - A restart of all containers leaves the dead ones to be seen, and the container that asks for it too often waits for
//     its back-off; the kubelet removes all of them and starts over at once.
//   - An ephemeral container waits for the container whose processes it is to see; the kubelet fails it until then.
//   - A sidecar ends after every later sidecar that runs; in the kubelet after the next one, even if that does not run.
//   - A change of resources that alters the QoS class of a pod is infeasible; it waits as PodResizePending.
//   - A container that no size slows down any more, as its request has become its limit, gets a memory.high of max; the
//     kubelet leaves it slowed down where it was before.
//   - What the last agent said of a pod is kept on disk: a job of a manifest that has ended stays ended, and its restart
//     counts stay, whatever becomes of its containers. The kubelet has what the API server has.
//   - A postStart hook that an agent died in runs once more under the next; the kubelet leaves the container without it.
//   - The status is brought up to date also while containers are being started or stopped, which the kubelet does for
//     readiness alone.
//   - Dead sandboxes, dead containers but the newest of each name with their logs, and the logs of pods that are gone are
//     removed at once, not by a garbage collector.
//   - The last state of a container is the last end that is known, and the restart count is how often it was started
//     again; the kubelet may show a life without an end, miss a restart, and count one that never comes.
//   - A container that was created and not started has no ID in its status, and one that could not be started has no start
//     time; the kubelet says 1970.
//   - An image is called what the pod called it where the runtime has kept that; the kubelet shows the ID of one without a tag.
//   - Whether a mount is read-only with all below it is what the runtime says of it; the kubelet what it would ask for.
//   - The resources in the status of a pod are what it is allocated, also while it runs, where the kubelet reads its cgroup.
//   - A deleted static pod ends as Succeeded or Failed like any other.
//   - The addresses of a pod on the network of its host are kept for as long as its sandbox, across restarts of the agent, and
//     its hooks may ask there; the kubelet takes those of the node anew with each new reading, and fails the hooks.
//   - A resize after which the runtime was not told what a container is to have is an error, and is tried again later.
//   - Nobody asks the runtime whether the network of the node is there: where it is not, a sandbox fails, and is tried again.
//
// Test kit: package critest has a runtime in memory and in virtual time.
package lifecycle
