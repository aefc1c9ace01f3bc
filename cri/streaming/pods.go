// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"slices"

	"github.com/seed81659283/nodeagent/cri"
)

// Pods reports the pods of the runtime and their changes. *pleg.Generator implements it.
type Pods interface {
	// Notify registers fn, which is called with the UIDs of changed pods.
	Notify(fn func(uids ...string))
	// Get returns the last listed state of a pod.
	Get(uid string) (cri.Pod, error)
	// Pods returns the last listed state of all pods.
	Pods() ([]cri.Pod, error)
}

// watchPods registers a callback with pods. The callback closes the sessions of each container that has exited and of each
// sandbox that is not ready.
func (s *Server) watchPods(pods Pods) {
	pods.Notify(func(uids ...string) {
		for _, session := range s.listSessions() {
			if slices.Contains(uids, session.Target.PodUID) && !isRunning(pods, session.Target) {
				s.CloseSessions(session.Target.ID, "the container or the pod has ended")
			}
		}
	})
}

// isRunning reports whether the target of a session is a running container or a ready sandbox. It also returns true if the
// pod is unknown.
func isRunning(pods Pods, target Target) bool {
	pod, err := pods.Get(target.PodUID)
	return err != nil ||
		slices.ContainsFunc(pod.Containers, func(c cri.Container) bool { return c.ID == target.ID && c.State == cri.ContainerRunning }) ||
		slices.ContainsFunc(pod.Sandboxes, func(s cri.Sandbox) bool { return s.ID == target.ID && s.State == cri.SandboxReady })
}

// findPodUID returns the UID of the pod with this container or sandbox ID, or an empty string if there is none.
func findPodUID(pods Pods, id string) string {
	all, _ := pods.Pods()
	for _, pod := range all {
		if slices.ContainsFunc(pod.Containers, func(c cri.Container) bool { return c.ID == id }) ||
			slices.ContainsFunc(pod.Sandboxes, func(s cri.Sandbox) bool { return s.ID == id }) {
			return pod.UID
		}
	}
	return ""
}
