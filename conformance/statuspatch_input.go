// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Said has a pod, its previously reported status, and a new status to report.
type Said struct {
	Pod            *corev1.Pod
	Before, Status corev1.PodStatus
	MayRun         bool // a container of the pod may run
}

// NewSaid returns a random pod with two statuses: the status that was reported last, and a new status. Both statuses contain
// only containers of the pod's spec.
func NewSaid(c *Choices) Said {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod", UID: "u1", Generation: int64(c.Int(5))}}
	pod.Spec.RestartPolicy = Pick(c, corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever, corev1.RestartPolicyAlways)
	for i := range 1 + c.Int(3) {
		pod.Spec.Containers = append(pod.Spec.Containers, restarted(c, fmt.Sprint("c", i)))
	}
	for i := range c.Int(3) {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, restarted(c, fmt.Sprint("i", i)))
	}
	if c.OneIn(8) {
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e"}}}
	}
	s := Said{Pod: pod, Before: podStatusOf(c, pod), MayRun: c.OneIn(3)}
	s.Status = podStatusOf(c, pod)
	if c.OneIn(3) { // only one field differs
		s.Status = *s.Before.DeepCopy()
		alter(c, &s.Status)
	}
	pod.Status = s.Before
	return s
}

// restarted returns a container that may have its own restart policy and restart rules.
func restarted(c *Choices, name string) corev1.Container {
	ctr := corev1.Container{Name: name}
	if c.OneIn(3) {
		ctr.RestartPolicy = Pick(c, new(corev1.ContainerRestartPolicyAlways), new(corev1.ContainerRestartPolicyOnFailure), new(corev1.ContainerRestartPolicyNever))
		if c.OneIn(2) {
			ctr.RestartPolicyRules = []corev1.ContainerRestartRule{{
				Action:    Pick(c, corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers),
				ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: Pick(c, corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn), Values: []int32{1}},
			}}
		}
	}
	return ctr
}

// alter changes one random field of s, or none.
func alter(c *Choices, s *corev1.PodStatus) {
	switch c.Int(7) {
	case 1:
		s.Phase = phaseOf(c)
	case 2:
		s.Conditions = podConditionsOf(c)
	case 3:
		s.ObservedGeneration++
	case 4:
		if len(s.ContainerStatuses) > 0 {
			s.ContainerStatuses[0].Ready = !s.ContainerStatuses[0].Ready
		}
	case 5:
		s.ResourceClaimStatuses = append(s.ResourceClaimStatuses, corev1.PodResourceClaimStatus{Name: "more"})
	case 6:
		s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: "fd00::9"})
	}
}

func phaseOf(c *Choices) corev1.PodPhase {
	return Pick(c, corev1.PodRunning, corev1.PodPending, corev1.PodSucceeded, corev1.PodFailed)
}

func podStatusOf(c *Choices, pod *corev1.Pod) corev1.PodStatus {
	s := corev1.PodStatus{
		Phase: phaseOf(c), Reason: Pick(c, "", "Evicted"), Message: Pick(c, "", "why"), ObservedGeneration: int64(c.Int(4)),
		QOSClass: Pick(c, corev1.PodQOSBestEffort, corev1.PodQOSBurstable), Conditions: podConditionsOf(c),
	}
	for _, ip := range []string{"10.0.0.1", "10.0.0.2", "fd00::1"} {
		if c.OneIn(3) {
			s.PodIP, s.PodIPs = ip, append(s.PodIPs, corev1.PodIP{IP: ip})
			s.HostIP, s.HostIPs = ip, append([]corev1.HostIP{{IP: ip}}, s.HostIPs...)
		}
	}
	if !c.OneIn(4) {
		s.StartTime = new(saidTime(c))
	}
	if c.OneIn(6) {
		s.VolumeHealth = []corev1.PodVolumeHealth{{Name: Pick(c, "data", "logs")}}
	}
	if c.OneIn(6) {
		s.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: Pick(c, "gpu", "nic")}}
	}
	if c.OneIn(6) {
		s.AllocatedResources = list(c)
		s.Resources = new(anything(c))
	}
	for i := range pod.Spec.Containers {
		if !c.OneIn(8) {
			s.ContainerStatuses = append(s.ContainerStatuses, containerStatusOf(c, pod.Spec.Containers[i].Name))
		}
	}
	for i := range pod.Spec.InitContainers {
		if !c.OneIn(16) {
			s.InitContainerStatuses = append(s.InitContainerStatuses, containerStatusOf(c, pod.Spec.InitContainers[i].Name))
		}
	}
	if len(pod.Spec.EphemeralContainers) > 0 {
		s.EphemeralContainerStatuses = []corev1.ContainerStatus{containerStatusOf(c, "e")}
	}
	if n := len(s.ContainerStatuses); n > 1 && c.OneIn(4) {
		s.ContainerStatuses[0], s.ContainerStatuses[n-1] = s.ContainerStatuses[n-1], s.ContainerStatuses[0]
	}
	if n := len(s.InitContainerStatuses); n > 1 && c.OneIn(8) {
		s.InitContainerStatuses[0], s.InitContainerStatuses[n-1] = s.InitContainerStatuses[n-1], s.InitContainerStatuses[0]
	}
	return s
}

func podConditionsOf(c *Choices) (out []corev1.PodCondition) {
	for _, t := range []corev1.PodConditionType{
		"example.com/gate", corev1.PodReady, corev1.ContainersReady, corev1.PodInitialized, corev1.PodScheduled, corev1.DisruptionTarget,
		corev1.PodReadyToStartContainers, corev1.PodResizePending, corev1.AllContainersRestarting, "example.com/other",
	} {
		if c.OneIn(2) {
			continue
		}
		p := corev1.PodCondition{Type: t, Status: Pick(c, corev1.ConditionTrue, corev1.ConditionFalse), Reason: Pick(c, "", "Because"), ObservedGeneration: int64(c.Int(3))}
		if !c.OneIn(3) {
			p.LastTransitionTime = saidTime(c)
		}
		out = append(out, p)
	}
	if n := len(out); n > 1 && c.OneIn(4) {
		out[0], out[n-1] = out[n-1], out[0]
	}
	return out
}

func containerStatusOf(c *Choices, name string) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: name, Ready: c.OneIn(2), RestartCount: int32(c.Int(3)), State: containerStateOf(c), LastTerminationState: containerStateOf(c),
	}
}

func containerStateOf(c *Choices) corev1.ContainerState {
	switch c.Int(4) {
	case 1:
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: saidTime(c)}}
	case 2:
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}
	case 3:
		return corev1.ContainerState{}
	}
	message := Pick(c, "", "short", strings.Repeat("long ", 3000), "short", strings.Repeat("aü", 4500), "not\xffUTF-8")
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: int32(c.Int(3)), Message: message, StartedAt: saidTime(c), FinishedAt: saidTime(c),
	}}
}

// saidTime returns a random time in the first minute of 2020.
func saidTime(c *Choices) metav1.Time {
	return metav1.Time{Time: time.Date(2020, 1, 1, 0, 0, c.Int(60), Pick(c, 0, 0, 999), time.UTC)}
}
