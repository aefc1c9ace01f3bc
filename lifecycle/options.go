// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// Options configures a [Reconciler]. The zero value is for production. A pod that needs an option which is not set is rejected.
type Options struct {
	// Owner is the value of [LabelOwner], unique among the agents that share a runtime. Empty: a random ID that is kept in
	// Dirs.Pods. See "Sources and orphaned pods" in the package documentation.
	Owner string
	// AdoptUnlabeled is true if this agent takes the place of a kubelet, which does not run: sandboxes and containers without [LabelOwner] are also its own.
	// The kubelet's files with the resources allocated to pods, in the parent directory of Dirs.Pods, are read and written.
	AdoptUnlabeled bool
	// Sources names all sources of pods. The Reconciler tears down orphaned pods only after each of these sources has passed a
	// complete [PodSet]. Empty: a complete PodSet of one source is enough.
	Sources []string
	// Spec has the settings of the node for sandbox and container configs, such as DNS and the log directory; each field has its
	// default.
	Spec podspec.Options
	// Dirs are the directories in which the agent keeps data of pods. Zero: it keeps none.
	Dirs Dirs
	// NoMounts is true if the runtime cannot mount files into containers, like package cri/process. Containers then get no
	// /etc/hosts and no termination message file.
	NoMounts bool

	// Images pulls images. Nil: [Images] with its defaults if the runtime has images; else images are ignored.
	Images ImageSource
	// Cgroups manages a cgroup per pod. See [CgroupNamer] for Spec.CgroupParent and [NodeResources] for Spec.Node. Nil: the
	// runtime manages cgroups.
	Cgroups PodCgroups
	// Volumes sets up the volumes of pods, except image volumes, which the runtime mounts. Nil: pods with other volumes are
	// refused.
	Volumes PodResources
	// Devices reserves the devices of pods, and adds them to containers. Nil: pods that limit an extended resource, such as
	// example.com/gpu, are refused.
	Devices Devices
	// Objects provides the config maps, secrets and services that pods refer to. Nil: none exist.
	Objects Objects
	// Probes runs the liveness, readiness and startup probes. Nil: pods with probes are refused.
	Probes Probes
	// AllowedUnsafeSysctls lists the unsafe sysctls that pods may set in addition to the safe ones. A trailing "*" matches any
	// suffix. Nil: none.
	AllowedUnsafeSysctls []string

	// AppArmorError is the reason why this host cannot enforce AppArmor, as returned by machine.AppArmor. If it is set, pods with
	// an AppArmor profile are rejected. Nil: profiles are passed to the runtime.
	AppArmorError error

	// Admit decides whether a pod may run on this node; see [Admit]. Nil: all pods may run.
	Admit Admit
	// AdmitChecksNodeAffinity is true if Admit checks the node selector and the node affinity of a pod, as package admission does.
	// By default, a pod with a node selector or with hard node affinity is refused.
	AdmitChecksNodeAffinity bool
	// AdmitResize decides whether the node has capacity for the new requests of a pod. An error defers the resize, until a sync or
	// until pods release resources; a [podstatus.Rejection] with reason Infeasible refuses it. Nil: there is always capacity.
	AdmitResize func(pod *corev1.Pod) error

	// Pacing sets concurrency and intervals. A zero field has its default.
	Pacing Pacing
	// Logger logs the actions on pods. Nil: no logs.
	Logger *slog.Logger
	// Hooks are called after changes of pods and after errors.
	Hooks Hooks
}

// Dirs are the directories that an agent writes to, besides podspec.Options.LogRoot. They are created when needed.
//
// Each pod has a directory below Pods. Its file record.json has the state that a restarted agent cannot read from the runtime,
// such as a terminal phase. The directory also has the /etc/hosts and termination message files that are mounted into containers.
// Run locks Pods, and returns an error if another agent has locked it. Once all sources have reported, the directories of pods
// that no source lists are removed.
type Dirs struct {
	// Pods is the directory that contains the directories of pods. Empty: no records and files are kept, and pods with host
	// aliases are refused.
	Pods string
	// LogLinks is the directory for symbolic links to container logs, usually /var/log/containers, which log collectors read.
	// Empty: no links.
	LogLinks string
	// LoseStatuses permits RemoveTerminatedContainers without Pods: an agent that starts later does not know the removed
	// containers, which is acceptable if its runtime ends with it, or if the pods of its source carry their status. False: an error.
	LoseStatuses bool
}

// Pacing sets concurrency and intervals of a [Reconciler]. The zero value is for production.
type Pacing struct {
	// Parallel is the number of pods that may start at a time. Zero means twice the number of CPUs, but at least 4. In this case
	// up to four times as many may start while a quarter of the CPU time is idle.
	Parallel int
	// StartSlotTimeout is the time after which a start that is still in progress no longer counts for Parallel, so that the next
	// pod may start. Zero means 10 s.
	StartSlotTimeout time.Duration
	// MaxRestartPeriod is the longest CrashLoopBackOff, at most 5 minutes. A value below 10 s also shortens the first back-off.
	// Zero means 5 minutes.
	MaxRestartPeriod time.Duration
	// Resync is the time until a pod is synced again although nothing has changed. Up to half of it is added at random. Zero
	// means 1 minute.
	Resync time.Duration
	// Rand returns a random number in [0,1) for jitter. Nil means math/rand/v2.
	Rand func() float64
}

// Hooks are functions that a [Reconciler] calls. Any field may be nil. Unless a field says otherwise, the calls for one pod are
// sequential, come from the pod's own goroutine, and hold no lock. A hook that blocks delays its pod. The pods that hooks get are
// the Reconciler's own copies.
type Hooks struct {
	// StatusChanged is called when the published status of a pod has changed. It must not change pod and status.
	StatusChanged func(pod *corev1.Pod, status *corev1.PodStatus)
	// Event is called for each event of a pod, such as a started container or an error. If an error repeats, Event is called at
	// each retry. The calls for one pod are sequential, but may be concurrent with other hooks.
	Event func(pod cri.PodIdentity, event podevents.Event)
	// StartAttempted is called after each attempt to start a container, with its duration and error. Calls may be concurrent with
	// other hooks.
	StartAttempted func(pod cri.PodIdentity, start podevents.ContainerStart)
	// PodRemoved is called when the containers, volumes, devices, cgroup and files of a pod are removed. This includes an orphaned pod of
	// which only the directory remained.
	PodRemoved func(pod cri.PodIdentity)
	// ResourcesReleased is called when a pod that its source still lists has terminated for good and its volumes, devices and cgroup
	// are released: other pods may use its resources. Each agent process calls it once per pod.
	ResourcesReleased func(pod cri.PodIdentity)
	// PodRefused is called by [Reconciler.Set] for each pod that it refuses.
	PodRefused func(err *RefusedError)
	// Work has hooks for metrics of sandboxes and syncs.
	Work WorkHooks
	// Error is called after each failed sync of a pod. retry is the delay before the next sync. If pod is empty, err is about the
	// agent: the runtime cannot be listed, or the program does not run or connect a part of the agent. Such calls may be
	// concurrent with other hooks.
	Error func(pod cri.PodIdentity, err error, retry time.Duration)
}

// WorkHooks are functions for metrics. A [Reconciler] calls them after a piece of work, with its duration. They are called by the
// goroutines of the pods, concurrently with other hooks and with no lock held. They must not block. Any field may be nil.
type WorkHooks struct {
	// SandboxStartAttempted is called after each attempt to run the sandbox of a pod (kubelet_started_pods_total,
	// kubelet_run_podsandbox_duration_seconds).
	SandboxStartAttempted func(pod cri.PodIdentity, start podevents.SandboxStart)
	// PodSynced is called after each sync of a pod (kubelet_pod_worker_duration_seconds).
	PodSynced func(pod cri.PodIdentity, s podevents.Sync)
	// ImageVolumeRequested is called for each image volume of a container that is about to be created. err is nil if the image is
	// present, and the error of its pull otherwise (kubelet_image_volume_requested_total).
	ImageVolumeRequested func(pod cri.PodIdentity, err error)
	// SleepTerminated is called when the sleep action of a lifecycle hook ended before its time
	// (kubelet_sleep_action_terminated_early_total).
	SleepTerminated func(pod cri.PodIdentity)
}

// Admit decides whether a pod may run on this node in addition to the pods in others. others are the admitted pods that have not
// terminated, with their allocated resources. Admit must not change pod and others.
//
// Admit is called once per pod before anything is created for it, for the oldest pod first. It is not called for a pod that is
// deleted, has terminated, was admitted by a previous agent process, or exists in the runtime. A restart of the agent thus
// terminates no running pod.
//
// If Admit returns a [*podstatus.Rejection], the pod fails with its reason. After any other error the pod waits, and Admit is
// called again. A call may take 10 s, and no other pod is admitted meanwhile. If a call takes longer, Hooks.Error is called, and
// Admit is not called again for that pod until the call has returned.
type Admit func(ctx context.Context, pod *corev1.Pod, others []*corev1.Pod) error
