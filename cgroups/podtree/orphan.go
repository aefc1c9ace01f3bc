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

// PodCgroup is the cgroup of a pod that was found in the tree.
type PodCgroup struct {
	UID  string
	Path cgroups.Path
}

// RemovalAttempts is how work on an orphan went so far.
type RemovalAttempts struct {
	Busy     bool      // it is being worked on now
	Failures int       // in a row
	Retry    time.Time // not before
}

// OrphanState is what [PlanOrphans] decides on. What was found must have been read before the pods were asked for: a pod
// that comes in between is then known.
type OrphanState struct {
	Found      []PodCgroup
	Attempts   map[cgroups.Path]RemovalAttempts // of those that were found before
	Complete   bool                             // every source of pods has said what it wants
	MayRun     func(uid string) bool            // see [Pods]
	HasVolumes func(uid string) bool            // see [Options]
	Now        time.Time
}

// OrphanPlan is what to do about the cgroups of orphaned pods. Those that have failed least often come first.
type OrphanPlan struct {
	Remove  []PodCgroup
	Shrink  []PodCgroup // to the least CPU shares: their volumes are still mounted
	Waiting []PodCgroup // for the end of their back-off, or for what is being done
	Wake    time.Time
}

// PlanOrphans decides what to do about the cgroups that were found. The cgroup of a pod that may run is never touched,
// nor any as long as not all pods are known. Wake is when the next back-off ends, zero for none.
func PlanOrphans(s OrphanState) OrphanPlan {
	var plan OrphanPlan
	if !s.Complete {
		return plan
	}
	for _, f := range s.Found {
		attempt := s.Attempts[f.Path]
		switch {
		case s.MayRun(f.UID):
		case attempt.Busy:
			plan.Waiting = append(plan.Waiting, f)
		case attempt.Retry.After(s.Now):
			plan.Waiting = append(plan.Waiting, f)
			if plan.Wake.IsZero() || attempt.Retry.Before(plan.Wake) {
				plan.Wake = attempt.Retry
			}
		case s.HasVolumes(f.UID):
			plan.Shrink = append(plan.Shrink, f)
		default:
			plan.Remove = append(plan.Remove, f)
		}
	}
	for _, list := range [][]PodCgroup{plan.Remove, plan.Shrink} {
		slices.SortStableFunc(list, func(a, b PodCgroup) int {
			return cmp.Compare(s.Attempts[a.Path].Failures, s.Attempts[b.Path].Failures)
		})
	}
	return plan
}

// retryPolicy is for cgroups that could not be removed.
func retryPolicy() backoff.Policy {
	return backoff.Policy{First: 10 * time.Second, Max: 5 * time.Minute}
}
