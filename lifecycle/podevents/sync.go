// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podevents

import (
	"time"
)

// Sync is the record of one sync of a pod, in which the agent observed the pod, planned the next actions and executed them.
type Sync struct {
	Op     SyncOp
	Took   time.Duration // duration of the sync with the wait for the observation
	First  bool          // it is the first sync of the pod in this agent process
	Waited time.Duration // time from the call of Set that listed the pod to the first sync; zero for later syncs
	Orphan bool          // no source lists the pod: it only exists in the runtime
}

// SyncOp is the purpose of a sync.
type SyncOp string

// The purposes of syncs, in the words of the kubelet's label.
const (
	SyncCreate     SyncOp = "create"     // the first sync of the pod by this agent
	SyncUpdate     SyncOp = "update"     // the source has changed the pod
	SyncPod        SyncOp = "sync"       // the observed state has changed, or the resync period has passed
	SyncKill       SyncOp = "kill"       // the pod is terminating
	SyncTerminated SyncOp = "terminated" // the runtime has nothing of the pod any more
)
