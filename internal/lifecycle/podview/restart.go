// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podview

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// ShouldRestart reports whether a container that exited with exitCode must be restarted. Its first matching restart rule
// decides, otherwise its restart policy, otherwise that of the pod. Source: KEP-5307, pkg/api/v1/pod/util.go.
func ShouldRestart(pod *corev1.PodSpec, container *corev1.Container, exitCode int32) bool {
	if container.RestartPolicy != nil {
		if matchRules(container.RestartPolicyRules, exitCode) != "" {
			return true
		}
		switch *container.RestartPolicy {
		case corev1.ContainerRestartPolicyAlways:
			return true
		case corev1.ContainerRestartPolicyOnFailure:
			return exitCode != 0
		case corev1.ContainerRestartPolicyNever:
			return false
		}
	}
	switch pod.RestartPolicy {
	case corev1.RestartPolicyOnFailure:
		return exitCode != 0
	case corev1.RestartPolicyNever:
		return false
	}
	return true
}

// matchRules returns the action of the first restart rule for exitCode, or "".
func matchRules(rules []corev1.ContainerRestartRule, exitCode int32) corev1.ContainerRestartRuleAction {
	for i := range rules {
		on := rules[i].ExitCodes
		if on == nil {
			continue
		}
		listed := slices.Contains(on.Values, exitCode)
		if (on.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn && listed) ||
			(on.Operator == corev1.ContainerRestartRuleOnExitCodesOpNotIn && !listed) {
			switch rules[i].Action {
			case corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers:
				return rules[i].Action
			}
			return ""
		}
	}
	return ""
}
