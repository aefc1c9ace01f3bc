// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podstore

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// podCost is the space that a pod needs in the file.
type podCost struct {
	pod           *corev1.Pod
	source        string
	bytes, values int // length of its line, and number of JSON values in the line
}

// choosePods returns the pods to store if all pods together exceed the limits of the file. It prefers sources with a high
// priority, then running pods, and shares the space equally by namespace.
func choosePods(costs []podCost, sources []string) map[*corev1.Pod]bool {
	type candidate struct {
		podCost
		rank  int     // priority of the source; 0 is the highest
		ended bool    // the pod has terminated
		used  float64 // fraction of the file used by the pod and those before it in its group
	}
	type group struct {
		rank      int
		ended     bool
		namespace string
	}
	used := map[group]float64{}
	all := make([]candidate, 0, len(costs))
	for _, c := range costs {
		rank := slices.Index(sources, c.source)
		if rank < 0 {
			rank = len(sources)
		}
		g := group{rank, podstatus.IsTerminal(c.pod.Status.Phase), c.pod.Namespace}
		used[g] += max(float64(c.bytes)/maxLines, float64(c.values)/maxValues)
		all = append(all, candidate{c, g.rank, g.ended, used[g]})
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		ended := 0
		if a.ended != b.ended {
			if ended = -1; a.ended {
				ended = 1
			}
		}
		return cmp.Or(cmp.Compare(a.rank, b.rank), ended, cmp.Compare(a.used, b.used))
	})
	chosen, bytes, values := map[*corev1.Pod]bool{}, 0, 0
	for _, c := range all {
		if bytes+c.bytes <= maxLines && values+c.values <= maxValues {
			chosen[c.pod] = true
			bytes, values = bytes+c.bytes, values+c.values
		}
	}
	return chosen
}
