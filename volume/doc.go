// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package volume gives pods their volumes: it sets up those that their containers mount, keeps them up to date and tears them
// down when the pod has terminated, also after the agent was killed. It does not know how a volume is made, which is for a
// [Plugin], and starts no containers.
//
// # Model
//
// [New] reads what earlier agents have left below [Options].Root, and starts nothing. [Volumes.Run] does the work. For a pod
// that is to run, [Volumes.Prepare] says what is desired and returns when the volumes are set up; [Volumes.Container] fills in
// what one of its containers mounts; [Volumes.Release] tears all down:
//
//	plugins := intree.Plugins(intree.Options{Objects: objects.NewDir("/etc/agent/objects")})
//	volumes, err := volume.New(volume.Options{Root: "/var/lib/agent/pods", Plugins: plugins})
//	...
//	go volumes.Run(ctx)
//	err = volumes.Prepare(ctx, pod)
//	err = volumes.Container(ctx, pod, &pod.Spec.Containers[0], &launch)
//	...
//	err = volumes.Release(ctx, string(pod.UID))
//
// Package plan decides which step of which volume is next: one at a time for each volume, a bounded number for the node,
// teardowns first, with a back-off after a failure. A step has a deadline. One that hangs delays its pod alone, and the error of
// Prepare says which volume the pod waits for, and why. The volume is tried again all the same, and [Volumes.Notify] tells when it
// is there.
//
// A volume with a claim is what the claim is bound to, of which [Options].Claims has the objects. What pods share of it is a [Device],
// which a [Stager] makes ready once for the node, after an [Attacher] has found it attached, and an [Expander] lets grow. On a node that
// enforces SELinux, [Options].SELinux, a [SELinuxMounter] mounts it with the label of its containers: one label at a time, so that a pod
// with another one waits. Package claim has the rules.
//
// A call of a plugin that does not return with its context is given up after 5 s. Neither Run nor Release waits for it; the volume is torn
// down meanwhile, and once more when the call has returned.
//
// Volumes that show objects of the cluster, those of a plugin that is a [Refresher], are brought up to date when
// [Options].Watcher says that an object has changed, when [Volumes.Update] says that the pod has, and every minute anyway. An
// update that fails leaves the volume as it was.
//
// # On disk
//
// The layout is the kubelet's: a volume is at Root/UID/volumes/PLUGIN/NAME, where the plugin's name has a tilde for its slash, and
// a path within a volume is mounted at Root/UID/volume-subpaths/NAME/CONTAINER/INDEX. NAME is that of the PV for a volume with a claim.
// A block device is a link at Root/UID/volumeDevices/PLUGIN/NAME. Beside them is volumes.json, the record of
// the pod: what a teardown needs. It is written before the first volume is set up and removed after the last is torn down, so an
// agent that starts knows all that earlier ones have made. It leaves that alone until Prepare, Update or Release of the pod is
// called, and then sets it up again, which changes nothing that is right, or tears it down. Where its objects cannot be had then, a
// plugin can say with a [StaleError] that it is usable as it is. A claim that nobody can be asked about is taken as the record has it,
// if the volume is mounted still or has no [Device]; what is no longer mounted of a device waits for an answer, as another node may have it.
//
// A record that cannot be read is an error of Release that names the file. Nothing of that pod is removed. Prepare writes it anew.
//
// It belongs here what is the same for all kinds of volumes. Plugins are in package intree, the files of config maps and secrets
// in package payload, atomic updates in package atomicwriter, paths within volumes in package subpath, and the group of files in
// package fsgroup. They are usable alone.
//
// # Concurrency
//
// All methods can be called from any goroutine, those of one pod one after the other. Run is called once. Plugins are called from
// goroutines of Run, for one volume one call at a time. Hooks are called with no lock held.
//
// # Errors
//
// The error about a volume is an [*Error], which names the step and the volume. None has contents of secrets in it. A plugin wraps a
// [FinalError] where nothing is left of a failed step, and a [StaleError] where the volume of a previous agent is usable. An error with a
// method Unanswered() bool that returns true means that a server did not answer: its back-off ends at 15 s instead of 2m2s.
//
// # Differs from the kubelet
//
// The behaviour is that of pkg/kubelet/volumemanager at 1.37.1. What a user must act on, with the rest in DIFFERENCES.md:
//
//   - A volume whose plugin is not there is refused by [Volumes.Check], when the pod is accepted.
//   - What was set up is known from records. Directories without one are left alone.
//   - An error of a plugin means that something of the volume may be left, unless it is a [FinalError].
//   - The error of Prepare names volume, step and cause, also on a time-out.
//
// Test kit: package volumetest has a plugin in memory, and the suite that every plugin passes.
package volume
