// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"slices"

	"github.com/seed81659283/nodeagent/cri"
)

// Pods are the pods of the runtime. *pleg.Generator is one.
type Pods interface {
	// Notify registers fn, which is called with the UIDs of pods that have changed.
	Notify(fn func(uids ...string))
	// Get returns a pod as it was listed last.
	Get(uid string) (cri.Pod, error)
	// Pods returns all pods as they were listed last.
	Pods() ([]cri.Pod, error)
}

// follow ends the sessions of containers and sandboxes that have stopped.
func (s *Server) watchPods(pods Pods) {
	pods.Notify(func(uids ...string) {
		for _, session := range s.listSessions() {
			if slices.Contains(uids, session.Target.PodUID) && !isRunning(pods, session.Target) {
				s.CloseSessions(session.Target.ID, "the container or the pod has ended")
			}
		}
	})
}

// isUp reports whether a container runs or a sandbox is ready. A pod that is not known may be up.
func isRunning(pods Pods, t Target) bool {
	pod, err := pods.Get(t.PodUID)
	return err != nil ||
		slices.ContainsFunc(pod.Containers, func(c cri.Container) bool { return c.ID == t.ID && c.State == cri.ContainerRunning }) ||
		slices.ContainsFunc(pod.Sandboxes, func(s cri.Sandbox) bool { return s.ID == t.ID && s.State == cri.SandboxReady })
}

// uidOf returns the UID of the pod of a container or a sandbox, or nothing.
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
