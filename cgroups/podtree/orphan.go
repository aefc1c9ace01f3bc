// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/internal/backoff"
)

// PodCgroup is an existing pod cgroup with the UID of its pod.
type PodCgroup struct {
	UID  string
	Path cgroups.Path
}

// RemovalAttempts records the attempts to remove an orphaned pod cgroup.
type RemovalAttempts struct {
	Busy     bool      // an attempt is running
	Failures int       // failures in a row
	Retry    time.Time // earliest time of the next attempt
}

// OrphanState is the input of [PlanOrphans]. The caller must list the cgroups before it reads the pods: the cgroup of a pod that
// is added in between is then not in Found.
type OrphanState struct {
	Found      []PodCgroup
	Attempts   map[cgroups.Path]RemovalAttempts // of previously found orphans
	Complete   bool                             // every source has reported its pods
	MayRun     func(uid string) bool            // see [Pods]
	HasVolumes func(uid string) bool            // see [Options]
	Now        time.Time
}

// OrphanPlan lists the orphaned pod cgroups to process. Cgroups with fewer failed removals are first.
type OrphanPlan struct {
	Remove  []PodCgroup
	Shrink  []PodCgroup // set to the minimum CPU shares instead, because volumes of the pod are mounted
	Waiting []PodCgroup // in back-off, or being processed
	Wake    time.Time   // end of the next back-off; zero: none
}

// PlanOrphans returns which of the found cgroups to remove, because their pods no longer exist, or to shrink, because such a pod
// has volumes. It never selects a pod that may run, and plans nothing until all sources have reported.
func PlanOrphans(state OrphanState) OrphanPlan {
	var plan OrphanPlan
	if !state.Complete {
		return plan
	}
	for _, f := range state.Found {
		attempt := state.Attempts[f.Path]
		switch {
		case state.MayRun(f.UID):
		case attempt.Busy:
			plan.Waiting = append(plan.Waiting, f)
		case attempt.Retry.After(state.Now):
			plan.Waiting = append(plan.Waiting, f)
			if plan.Wake.IsZero() || attempt.Retry.Before(plan.Wake) {
				plan.Wake = attempt.Retry
			}
		case state.HasVolumes(f.UID):
			plan.Shrink = append(plan.Shrink, f)
		default:
			plan.Remove = append(plan.Remove, f)
		}
	}
	for _, list := range [][]PodCgroup{plan.Remove, plan.Shrink} {
		slices.SortStableFunc(list, func(a, b PodCgroup) int {
			return cmp.Compare(state.Attempts[a.Path].Failures, state.Attempts[b.Path].Failures)
		})
	}
	return plan
}

// retryPolicy returns the back-off after failed removals of a cgroup.
func retryPolicy() backoff.Policy {
	return backoff.Policy{First: 10 * time.Second, Max: 5 * time.Minute}
}
