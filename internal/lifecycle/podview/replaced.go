// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podview

import (
	"slices"

	"github.com/seed81659283/nodeagent/cri"
)

// HideReplacement returns the observation without the replacement of containers that an agent is stopping, or removing unstarted, in order to
// start their successors: each is as it was before, until its successor runs or has exited. A status of this observation reports neither its exit nor
// the wait for its successor. The kubelet computes a status only when a sync begins, and stops and starts the container in one sync. Source:
// SyncPod in pkg/kubelet/kubelet.go.
func HideReplacement(observed cri.Pod, replaced []cri.Container) cri.Pod {
	if len(replaced) == 0 {
		return observed
	}
	list := slices.Clone(observed.Containers)
	for _, before := range replaced {
		successor := func(c cri.Container) bool {
			anew := before.State == cri.ContainerCreated && c.Attempt == before.Attempt && c.ID != before.ID
			return c.Name == before.Name && (c.Attempt > before.Attempt || anew)
		}
		if slices.ContainsFunc(list, func(c cri.Container) bool { return successor(c) && c.State != cri.ContainerCreated }) {
			continue
		}
		list = slices.DeleteFunc(list, func(c cri.Container) bool { return c.ID == before.ID || successor(c) })
		list = append(list, before)
	}
	observed.Containers = list
	return observed
}
