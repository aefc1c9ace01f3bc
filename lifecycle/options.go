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

// Options configures a [Reconciler]. The zero value is for production. What is nil or empty is left out: pods that need it are
// rejected.
type Options struct {
	// Owner is written to LabelOwner; no two agents of a runtime may have the same. Empty: a random ID that is kept in
	// Dirs.Pods. See the package doc, Orphaned pods.
	Owner string
	// Sources names the sources that must have reported completely before an orphaned pod is taken down. Empty: the first
	// complete set is enough.
	Sources []string
	// Spec is what configs are made from beside the pod. Its fields say what zero means.
	Spec podspec.Options
	// Dirs are where the agent keeps what it makes for pods. Zero: nothing is kept.
	Dirs Dirs
	// NoMounts says that the runtime cannot mount, as cri/process cannot: containers get no hosts file and no file for a
	// termination message.
	NoMounts bool

	// Images makes images present. Nil means [Images] with its defaults where the runtime has images, else no image is
	// looked at.
	Images ImageSource
	// Cgroups makes a cgroup for each pod, see [CgroupNamer] for Spec.CgroupParent and [NodeResources] for Spec.Node. Nil leaves
	// that to the runtime.
	Cgroups PodCgroups
	// Volumes are the volumes of pods but for images, which are the runtime's. Nil: pods that have some are refused.
	Volumes PodResources
	// Objects are the config maps, secrets and services that pods refer to. Nil: there are none.
	Objects Objects
	// Probes runs the liveness, readiness and startup probes. Nil: pods that have probes are refused.
	Probes Probes
	// Sysctls are those that pods may set beside the ones that touch no other pod; a star at the end of a name stands
	// for all that begin like it. Nil: none.
	AllowedUnsafeSysctls []string

	// AppArmor is why this host cannot enforce AppArmor, as machine.AppArmor returns it: pods that have a profile are rejected. Nil: profiles are
	// passed to the runtime.
	AppArmorError error

	// Admit is asked whether a pod is to run here, see [Admit]. Nil: all are.
	Admit Admit
	// AdmitsByNode says that Admit compares the node selector and the required node affinity of a pod with the Node, as package
	// admission does. False: pods that have these are refused.
	AdmitChecksNodeAffinity bool
	// AdmitResize is asked whether the node has room for the resources that a pod requests instead of its own, at each sync and when other pods
	// release resources. Its error defers the resize, or is a [podstatus.Rejection] of reason Infeasible, and has the message. Nil: there always is.
	AdmitResize func(pod *corev1.Pod) error

	// Pacing is how much is done at a time, and how often. A zero field has its default.
	Pacing Pacing
	// Logger gets what is done to pods. Nil discards.
	Logger *slog.Logger
	// Hooks are told what happens.
	Hooks Hooks
}

// Dirs are the directories that an agent writes to, beside that of logs (podspec.Options.LogRoot). They are made when needed.
//
// Pods is this agent's alone: Run locks it, and fails where another agent has. In it are, for each pod, record.json with what
// the next agent could read nowhere else, such as a terminal phase; and, mounted into containers, a hosts file and files for
// termination messages. Once all sources have reported, the directories of pods that nobody wants are removed, if they have a
// record. Without it there is nothing of all that, pods with host aliases are refused, and the next agent knows what the
// runtime and the API server tell it.
type Dirs struct {
	// Pods is the parent of the directories of pods. Empty: none are kept.
	Pods string
	// LogLinks is for links to the logs of containers, named as in /var/log/containers, which many a log shipper follows.
	// Empty: there are none.
	LogLinks string
}

// Pacing is how much is done at a time, and how often. The zero value is for production.
type Pacing struct {
	// Parallel is how many pods are started at the same time. Zero means as many as the machine can do: twice the
	// processors, at least 4, and while starts wait and a quarter of the CPU time is idle up to four times as many.
	Parallel int
	// SlowAfter is when a start that hangs releases its start slot to the next pod; it goes on all the same. Zero means 10 s.
	StartSlotTimeout time.Duration
	// MaxRestartPeriod is the longest back-off of a container that keeps exiting, at most 5 minutes, which zero means. One
	// below 10 s is also the first.
	MaxRestartPeriod time.Duration
	// Resync is how often a pod is looked at although nothing has changed; up to half is added at random. Zero
	// means 1 minute.
	Resync time.Duration
	// Rand returns a number in [0,1) for jitter. Nil means math/rand/v2.
	Rand func() float64
}

// Hooks are called by the goroutine of a pod, for one pod one after the other, with no lock held. A hook that blocks
// delays its pod. Any may be nil. Error is also called by other goroutines of [Reconciler.Run]. The pods are the
// Reconciler's own copies.
type Hooks struct {
	// Status is called when the status of a pod has changed. Both arguments must not be written to.
	StatusChanged func(pod *corev1.Pod, status *corev1.PodStatus)
	// Event is called for what is done to a pod and what goes wrong with it; for one pod one event after the other, but
	// perhaps beside another hook. What goes wrong again and again is told each time that it is tried.
	Event func(pod cri.PodIdentity, event podevents.Event)
	// Started is called for each attempt to start a container, with how long it took and what became of it. It is called
	// beside other hooks.
	StartAttempted func(pod cri.PodIdentity, start podevents.ContainerStart)
	// Gone is called when nothing of a pod is left, also for one of which an earlier agent had left only a directory.
	PodRemoved func(pod cri.PodIdentity)
	// Left is called when nothing of a pod runs or will, and its volumes and its cgroup are given back, although a source
	// still wants it: its resources are another's to have. Each agent says so once.
	ResourcesReleased func(pod cri.PodIdentity)
	// Refused is called by Set for each error about a pod that it returns.
	PodRefused func(err *RefusedError)
	// Work are told what is done for pods and how long it takes.
	Work WorkHooks
	// Error is called for each failed attempt to bring a pod to where it should be, with the wait before the next. With
	// an empty identity it is about the agent: the runtime cannot be read, or a part does not run or is not connected.
	Error func(pod cri.PodIdentity, err error, retry time.Duration)
}

// WorkHooks are called when work for pods is done, with its duration, mostly for metrics. Any may be nil. They are called by the goroutines of
// pods, concurrently with other hooks and with no lock held, and must not block.
type WorkHooks struct {
	// Sandbox is called for each attempt to run the sandbox of a pod (kubelet_started_pods_total,
	// kubelet_run_podsandbox_duration_seconds).
	SandboxStartAttempted func(pod cri.PodIdentity, start podevents.SandboxStart)
	// Synced is called after each sync of a pod (kubelet_pod_worker_duration_seconds).
	PodSynced func(pod cri.PodIdentity, s podevents.Sync)
	// ImageVolume is called for each image volume of a container that is about to be created: with a nil error once the image is present, or
	// with the error of its pull (kubelet_image_volume_requested_total).
	ImageVolumeRequested func(pod cri.PodIdentity, err error)
	// SleepTerminated is called when the sleep of a lifecycle hook was shorter than requested
	// (kubelet_sleep_action_terminated_early_total).
	SleepTerminated func(pod cri.PodIdentity)
}

// Admit decides whether a pod is to run on this node beside others. It is asked once for each pod, before anything is made of
// it, the oldest first: never again for a pod that has a record or anything in the runtime, so that a restart of the agent
// ends nothing that runs; and not for one that is deleted or has terminated.
//
// Others are the pods that are admitted and have not terminated, with the resources that they are allocated. They must not be
// written to, nor the pod.
//
// A [*podstatus.Rejection] fails the pod with its reason. Another error is one of asking: the pod waits, and Admit is asked again. A
// call has 10 s; while it lasts no other pod is admitted. One that does not return then is told to Hooks.Error, and not asked
// about that pod again until it has.
type Admit func(ctx context.Context, pod *corev1.Pod, others []*corev1.Pod) error
