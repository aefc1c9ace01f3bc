// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podview

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// ShouldRestart reports whether a container that exited with exitCode is restarted. The first matching rule of the container
// decides, else its restart policy, else that of the pod. Rules count only if the container has a policy; an unknown policy
// counts as Always. Source: KEP-5307, pkg/api/v1/pod/util.go of the kubelet.
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

// matchRules returns the action of the first rule that matches exitCode: restart the container, restart all containers, or "".
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
