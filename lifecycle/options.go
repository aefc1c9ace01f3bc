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

// Options configures a [Reconciler]. The zero value is for production. Pods that need an option which is not set are rejected.
type Options struct {
	// Owner is the value of [LabelOwner], unique among the agents that share a runtime. Empty: a random ID that is kept in
	// Dirs.Pods. See "Sources and orphaned pods" in the package documentation.
	Owner string
	// Sources names all sources of pods. No orphaned pod is torn down before each of them has passed a complete [PodSet]. Empty: one
	// complete PodSet of any source suffices.
	Sources []string
	// Spec has the settings of the node for sandbox and container configs, such as DNS and the log directory.
	Spec podspec.Options
	// Dirs are the directories for data of pods. Zero: the agent keeps no files.
	Dirs Dirs
	// NoMounts says that the runtime cannot mount files, like package cri/process. Containers then get no /etc/hosts and no
	// termination message file.
	NoMounts bool

	// Images pulls images. Nil: [Images] with its defaults if the runtime has images; else images are ignored.
	Images ImageSource
	// Cgroups manages a cgroup per pod. See [CgroupNamer] for Spec.CgroupParent and [NodeResources] for Spec.Node. Nil: the
	// runtime manages cgroups.
	Cgroups PodCgroups
	// Volumes sets up the volumes of pods, except image volumes, which the runtime mounts. Nil: pods with other volumes are
	// refused.
	Volumes PodResources
	// Objects provides the config maps, secrets and services that pods refer to. Nil: none exist.
	Objects Objects
	// Probes runs the liveness, readiness and startup probes. Nil: pods with probes are refused.
	Probes Probes
	// AllowedUnsafeSysctls lists the unsafe sysctls that pods may set in addition to the safe ones. A trailing "*" matches any
	// suffix. Nil: none.
	AllowedUnsafeSysctls []string

	// AppArmorError is the reason why this host cannot enforce AppArmor, as returned by machine.AppArmor: pods with a profile are
	// rejected. Nil: profiles are passed to the runtime.
	AppArmorError error

	// Admit decides whether a pod may run on this node; see [Admit]. Nil: all pods may run.
	Admit Admit
	// AdmitChecksNodeAffinity says that Admit checks the node selector and required node affinity of a pod, as package admission
	// does. False: pods with these fields are refused.
	AdmitChecksNodeAffinity bool
	// AdmitResize decides whether the node has capacity for the resized requests of a pod. It is called at each sync, and after
	// other pods have released resources. An error defers the resize; a [podstatus.Rejection] of reason Infeasible refuses it.
	// Nil: there is always capacity.
	AdmitResize func(pod *corev1.Pod) error

	// Pacing sets concurrency and intervals. A zero field has its default.
	Pacing Pacing
	// Logger logs the actions on pods. Nil: no logs.
	Logger *slog.Logger
	// Hooks are called for changes of pods and errors.
	Hooks Hooks
}

// Dirs are the directories that an agent writes to, in addition to podspec.Options.LogRoot. They are created when needed.
//
// Each pod has a directory below Pods with record.json, which has the state that a restarted agent cannot read from the runtime,
// such as a terminal phase. It also has the /etc/hosts and termination message files that are mounted into containers. Run locks
// Pods and fails if another agent has locked it. Once all sources have reported, directories with a record of pods that no source
// lists are removed.
type Dirs struct {
	// Pods is the parent of the pods' directories. Empty: no records and files are kept, and pods with host aliases are refused.
	Pods string
	// LogLinks is the directory for symbolic links to container logs, usually /var/log/containers, which log collectors read.
	// Empty: no links.
	LogLinks string
}

// Pacing sets concurrency and intervals of a [Reconciler]. The zero value is for production.
type Pacing struct {
	// Parallel is the number of pods that may start at a time. Zero: twice the number of CPUs, at least 4, and up to four times
	// as many while starts wait and a quarter of the CPU time is idle.
	Parallel int
	// StartSlotTimeout is the time after which a slow start releases its slot to the next pod and continues. Zero means 10 s.
	StartSlotTimeout time.Duration
	// MaxRestartPeriod is the longest CrashLoopBackOff, at most 5 minutes. A value below 10 s also shortens the first back-off.
	// Zero means 5 minutes.
	MaxRestartPeriod time.Duration
	// Resync is the time between two syncs of a pod without a change, to which up to half is added at random. Zero means 1
	// minute.
	Resync time.Duration
	// Rand returns a random number in [0,1) for jitter. Nil means math/rand/v2.
	Rand func() float64
}

// Hooks are functions that a [Reconciler] calls. Unless a field says otherwise, the calls for one pod are sequential, come from
// the pod's own goroutine, and hold no lock. A hook that blocks delays its pod. Pods are the Reconciler's own copies. Any field
// may be nil.
type Hooks struct {
	// StatusChanged is called when the status of a pod has changed. It must not write to the arguments.
	StatusChanged func(pod *corev1.Pod, status *corev1.PodStatus)
	// Event is called for each event of a pod, such as a started container or an error. The calls for one pod are sequential, but
	// may be concurrent with other hooks. An error that repeats is reported at each retry.
	Event func(pod cri.PodIdentity, event podevents.Event)
	// StartAttempted is called after each attempt to start a container, with its duration and error. Calls may be concurrent with
	// other hooks.
	StartAttempted func(pod cri.PodIdentity, start podevents.ContainerStart)
	// PodRemoved is called when all containers, volumes, cgroups and files of a pod are removed, including an orphaned pod of
	// which only the directory was left.
	PodRemoved func(pod cri.PodIdentity)
	// ResourcesReleased is called when a pod that its source still lists has terminated for good and its volumes and cgroup are
	// removed: other pods may use its resources. Each agent process calls it once per pod.
	ResourcesReleased func(pod cri.PodIdentity)
	// PodRefused is called by [Reconciler.Set] for each error about a pod that it returns.
	PodRefused func(err *RefusedError)
	// Work has hooks for metrics of sandboxes and syncs.
	Work WorkHooks
	// Error is called after each failed sync of a pod, with the delay before the next one. If pod is empty, err is about the agent: the
	// runtime cannot be listed, or the program does not run or connect a part of it. Such calls may be concurrent with other hooks.
	Error func(pod cri.PodIdentity, err error, retry time.Duration)
}

// WorkHooks are functions for metrics that a [Reconciler] calls after a step of work, with its duration. The goroutines of pods
// call them, concurrently with other hooks and with no lock held. They must not block. Any field may be nil.
type WorkHooks struct {
	// SandboxStartAttempted is called after each attempt to run the sandbox of a pod (kubelet_started_pods_total,
	// kubelet_run_podsandbox_duration_seconds).
	SandboxStartAttempted func(pod cri.PodIdentity, start podevents.SandboxStart)
	// PodSynced is called after each sync of a pod (kubelet_pod_worker_duration_seconds).
	PodSynced func(pod cri.PodIdentity, s podevents.Sync)
	// ImageVolumeRequested is called for each image volume of a container that is about to be created. err is nil if the image is
	// present, or is the error of its pull (kubelet_image_volume_requested_total).
	ImageVolumeRequested func(pod cri.PodIdentity, err error)
	// SleepTerminated is called when the sleep action of a lifecycle hook ended before its time
	// (kubelet_sleep_action_terminated_early_total).
	SleepTerminated func(pod cri.PodIdentity)
}

// Admit decides whether a pod may run on this node, in addition to the pods in others. These are the admitted pods that have not
// terminated, with their allocated resources. Neither pod nor others may be written to.
//
// It is called once per pod, for the oldest pod first, before anything is created for it. It is not called for a pod that is
// deleted, has terminated, was admitted by a previous agent process, or exists in the runtime. So a restart of the agent
// terminates no running pod.
//
// A [*podstatus.Rejection] fails the pod with its reason. After any other error the pod waits, and Admit is called again. A call
// has 10 s, and no other pod is admitted meanwhile. If it does not return in time, Hooks.Error is called, and Admit is not called
// again for that pod until it has returned.
type Admit func(ctx context.Context, pod *corev1.Pod, others []*corev1.Pod) error
