// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/hook"
)

// A container may ask, by a rule about its exit code, for a restart of all containers of its pod in their sandbox. Each
// such restart begins a round, and every container carries the round that it was made in: lives of former rounds are
// stopped, and count for nothing but the restart count and the last state. So a restart that an agent did not live to
// finish is finished by the next one. Source: KEP-5532, computePodActions in
// pkg/kubelet/kuberuntime/kuberuntime_manager.go, which removes the containers instead.

// AnnotationRound carries the number of restarts of all containers that a pod had when a container was made. It is not
// there for zero.
const AnnotationRound = "nodeagent/round"

// roundOf returns the round that a container was made in.
func roundOf(c *cri.Container) int {
	n, _ := strconv.Atoi(c.Annotations[AnnotationRound]) // what does not parse is a first round
	return n
}

// round returns the round of the lives that count, and whether it has been asked for and none of it is there yet.
func round(pod *corev1.Pod, observed cri.Pod) (n int, fresh bool) {
	for i := range observed.Containers {
		n = max(n, roundOf(&observed.Containers[i]))
	}
	for _, specs := range [...][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range specs {
			if len(specs[i].RestartPolicyRules) == 0 {
				continue
			}
			last := newestContainer(observed.Containers, specs[i].Name, nil)
			if last != nil && roundOf(last) == n && restartsAll(&specs[i], last) {
				return n + 1, true
			}
		}
	}
	return n, false
}

// restartsAll tells whether the way in which a container ended asks for a restart of all.
func restartsAll(c *corev1.Container, last *cri.Container) bool {
	return last.State == cri.ContainerExited && c.RestartPolicy != nil &&
		ruleAction(c.RestartPolicyRules, last.ExitCode) == corev1.ContainerRestartRuleActionRestartAllContainers
}

// killFormerRounds ends what still runs from before the last restart of all containers, at once. Ephemeral containers
// stay.
func (a *Actions) killFormerRounds(s *State) {
	if s.round == 0 {
		return
	}
	ephemeral := func(name string) bool {
		return slices.ContainsFunc(s.Pod.Spec.EphemeralContainers, func(e corev1.EphemeralContainer) bool { return e.Name == name })
	}
	for i := range s.Observed.Containers {
		c := &s.Observed.Containers[i]
		if roundOf(c) < s.round && (c.State == cri.ContainerRunning || c.State == cri.ContainerUnknown) && !ephemeral(c.Name) {
			a.Kill = append(a.Kill, Kill{ID: c.ID, Name: c.Name, Grace: hook.MinimumGrace, Reason: "all containers are restarted"})
		}
	}
}

// endedByOthers tells whether a container of a former round was ended for another one, which is no reason to let it
// wait.
func endedByOthers(s *State, c *corev1.Container, dead *cri.Container) bool {
	return roundOf(dead) < s.round && !restartsAll(c, dead)
}
