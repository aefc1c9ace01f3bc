// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package volume sets up the volumes of pods, refreshes them while the pods run, and tears them down after the pods have
// terminated. It starts no containers, and it contains no volume type: each one is a [Plugin], such as those of packages intree
// and csi.
//
//	plugins := intree.Plugins(intree.Options{Objects: objects.NewDir("/etc/agent/objects")})
//	volumes, err := volume.New(volume.Options{Root: "/var/lib/agent/pods", Plugins: plugins})
//	...
//	go volumes.Run(ctx)                                                 // calls the plugins
//	err = volumes.Prepare(ctx, pod)                                     // sets up the volumes of the pod
//	err = volumes.Container(ctx, pod, &pod.Spec.Containers[0], &launch) // adds them to a container
//	err = volumes.Release(ctx, string(pod.UID))                         // after the last container has exited
//
// # Model
//
// [Volumes.Prepare] records the volumes of a pod and blocks until [Volumes.Run] has set them up. [Volumes.Release] blocks until
// Run has torn them down. Run executes one step per volume at a time, and at most [Options].Parallel steps per node, teardowns
// first. It retries a failed step with a back-off from 500 ms to 2m2s. A step that hangs delays only its own pod. 5 s after its
// deadline Run gives up the plugin call, so that the volume can be torn down, and tears it down again when the call returns.
//
// A volume with a PersistentVolumeClaim is the PV that the claim is bound to. Pods on the node share its [Device]: a [Stager]
// stages the device once, as NodeStageVolume does in CSI. Before that, an [Attacher] waits until the volume is attached. An
// [Expander] grows the volume on the node. On a node with SELinux, a [SELinuxMounter] mounts the volume with the label of the
// containers. As long as the volume is in use, Prepare refuses pods with a different label.
//
// The files of a [Refresher], such as those of a ConfigMap volume, are updated when [Options].Watcher reports a changed object,
// on [Volumes.Update], and once a minute. An update that fails leaves the files unchanged.
//
// # On disk
//
// The directory of a pod, Options.Root/UID, has the same layout as in the kubelet:
//
//	volumes.json                          record of all volumes of the pod: exists before the first set-up and until the last teardown
//	volumes/PLUGIN/NAME                   directory of a volume; NAME is the name of the PV or, without a claim, of the volume
//	volumeDevices/PLUGIN/NAME             symbolic link to a block device
//	volume-subpaths/NAME/CONTAINER/INDEX  bind mount of the subPath of a volume mount
//
// After a restart of the agent, [New] reads the records. Volumes stay unchanged until Prepare, Update or Release is called for
// their pod. Prepare calls SetUp for each volume again, which keeps all that is correct. If the ConfigMap or the token of a
// volume is unavailable, a plugin can return a [StaleError]: containers then use the existing files. If the claim is unavailable,
// a volume that is still mounted, or that has no Device, is used with the claim in its record. A Device that is no longer mounted
// waits for the API server, because another node may use it.
//
// # Concurrency and errors
//
// All methods may be called from any goroutine, but for one pod one at a time. Run is called once. It makes one plugin call per
// volume at a time. Hooks are called without a lock.
//
// The error about a volume is an [*Error] with step, volume and cause, also after a timeout. No error contains a secret. A plugin
// wraps its error in a [FinalError] if nothing of the volume remains on the node. If an error has a method Unanswered() bool that
// returns true, a server did not respond: the back-off ends at 15 s.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/volumemanager at 1.37.1. DIFFERENCES.md has all differences; the main ones:
//
//   - [Volumes.Check] refuses a volume without a plugin when the pod is admitted.
//   - Volumes are found by their records. A directory without a record is ignored, unless Options.AdoptUnrecorded is set.
//   - Release tears down a volume whose SetUp has failed, unless the error is a FinalError.
//
// Test kit: package volumetest has a plugin in memory, and the suite that every plugin passes.
package volume
