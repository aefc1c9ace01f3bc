// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// WorkHooks are told what is done for pods and how long it takes, mostly for metrics. Any may be nil. They are called by the
// goroutines of pods, beside other hooks and with no lock held, and must not block.
type WorkHooks struct {
	// Sandbox is called for each attempt to run the sandbox of a pod (kubelet_started_pods_total,
	// kubelet_run_podsandbox_duration_seconds).
	Sandbox func(pod cri.PodIdentity, start SandboxStart)
	// Synced is called after each look at a pod and what was done about it (kubelet_pod_worker_duration_seconds).
	Synced func(pod cri.PodIdentity, s Sync)
	// ImageVolume is called for each volume that is an image, and was made present for a container or was not
	// (kubelet_image_volume_requested_total).
	ImageVolume func(pod cri.PodIdentity, err error)
	// SleepTerminated is called when the sleep of a hook did not last as long as asked for
	// (kubelet_sleep_action_terminated_early_total).
	SleepTerminated func(pod cri.PodIdentity)
}

// SandboxStart is an attempt to run the sandbox of a pod.
type SandboxStart struct {
	Attempt        uint32
	RuntimeHandler string // empty: the default
	UserNamespace  bool   // the pod has one of its own
	Took           time.Duration
	Err            error // nil: it runs
}

// Sync is a look at a pod and what was done about it.
type Sync struct {
	Op     SyncOp
	Took   time.Duration // with the wait for a reading of the pod
	First  bool          // it is the first one of this agent
	Waited time.Duration // before the first one, since the pod was wanted; zero for later ones
	Orphan bool          // no source has told what the pod is: only the runtime has it
}

// SyncOp is what a look at a pod was for.
type SyncOp string

// What looks are for, in the words of the kubelet's label.
const (
	SyncCreate     SyncOp = "create"     // the first one of this agent
	SyncUpdate     SyncOp = "update"     // its source gave another pod
	SyncPod        SyncOp = "sync"       // something has changed, or time has passed
	SyncKill       SyncOp = "kill"       // the pod is terminating
	SyncTerminated SyncOp = "terminated" // nothing is left of it
)

// ContainerType is which list of a pod a container is in.
type ContainerType string

// The types of containers, in the words of the kubelet's label.
const (
	RegularContainer   ContainerType = "container"
	InitContainer      ContainerType = "init_container" // also a sidecar
	EphemeralContainer ContainerType = "ephemeral_container"
)
