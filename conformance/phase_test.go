// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/kubelet"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

func TestPhase(t *testing.T)         { run(t, phase) }
func FuzzPhase(f *testing.F)         { fuzz(f, phase) }
func TestShouldRestart(t *testing.T) { run(t, shouldRestart) }
func FuzzShouldRestart(f *testing.F) { fuzz(f, shouldRestart) }

// phaseInput has the inputs from which a phase is computed.
type phaseInput struct {
	Pod                  *corev1.Pod
	Statuses             []corev1.ContainerStatus
	Deleted, Initialized bool
}

var phase = conformance.Comparison[phaseInput, corev1.PodPhase]{
	Make: func(c *conformance.Choices) phaseInput {
		in := phaseInput{Pod: scenePod(c), Deleted: c.OneIn(3), Initialized: c.OneIn(2)}
		if c.OneIn(6) {
			in.Pod.Annotations = map[string]string{kubetypes.ConfigSourceAnnotationKey: kubetypes.FileSource}
		}
		for _, spec := range (scene{Pod: in.Pod}).specs() {
			if !c.OneIn(10) {
				in.Statuses = append(in.Statuses, containerStatus(c, spec.Name))
			}
		}
		return in
	},
	Kubelet: kubeletPhase,
	Ours: func(in phaseInput) corev1.PodPhase {
		return podstatus.Phase(in.Pod, in.Statuses, podstatus.PhaseInput{Deleted: in.Deleted, Initialized: in.Initialized})
	},
	Exceptions: []conformance.Exception[phaseInput, corev1.PodPhase]{{
		Name:   "restart of all",
		Reason: "nodeagent has a waiting reason for the restart of all containers and keeps the last termination; the kubelet replaces the termination",
		When: func(in phaseInput) bool {
			return slices.ContainsFunc(in.Statuses, func(st corev1.ContainerStatus) bool { return waitsForAll(&st) != endsForAll(&st) })
		},
		Want: likeOurs,
	}},
}

// likeOurs returns the kubelet's phase for statuses in which a restart of all containers is marked in the kubelet's way.
func likeOurs(in phaseInput, _ corev1.PodPhase) corev1.PodPhase {
	statuses := in.Statuses
	in.Statuses = nil
	for _, st := range statuses {
		st = *st.DeepCopy()
		for _, end := range []*corev1.ContainerStateTerminated{st.State.Terminated, st.LastTerminationState.Terminated} {
			if end != nil {
				end.Reason = ""
			}
			if end != nil && waitsForAll(&st) {
				end.Reason = podstatus.ReasonRestartingAllContainers
			}
		}
		in.Statuses = append(in.Statuses, st)
	}
	return kubeletPhase(in)
}

func kubeletPhase(in phaseInput) corev1.PodPhase {
	return kubelet.ConformancePhase(context.Background(), in.Pod, in.Statuses, in.Deleted, in.Initialized)
}

// waitsForAll reports whether the container waits for the restart of all containers, in the format of nodeagent.
func waitsForAll(st *corev1.ContainerStatus) bool {
	return st.State.Waiting != nil && st.State.Waiting.Reason == podstatus.ReasonRestartingAllContainers
}

// endsForAll reports whether the container has terminated for a restart of all containers, in the format of the kubelet.
func endsForAll(st *corev1.ContainerStatus) bool {
	end := st.State.Terminated
	if end == nil && st.State.Waiting != nil {
		end = st.LastTerminationState.Terminated
	}
	return end != nil && end.Reason == podstatus.ReasonRestartingAllContainers
}

// containerStatus returns a random container status.
func containerStatus(c *conformance.Choices, name string) corev1.ContainerStatus {
	st := corev1.ContainerStatus{Name: name, Ready: c.OneIn(2), Started: conformance.Pick(c, nil, new(true), new(true), new(false))}
	if c.OneIn(3) {
		st.LastTerminationState.Terminated = terminated(c)
	}
	switch c.Int(8) {
	case 0, 1, 2:
		st.State.Running = &corev1.ContainerStateRunning{}
	case 3, 4:
		st.State.Terminated = terminated(c)
	case 5, 6:
		st.State.Waiting = &corev1.ContainerStateWaiting{Reason: conformance.Pick(c, podstatus.ReasonCrashLoopBackOff, "", podstatus.ReasonRestartingAllContainers)}
	}
	return st
}

func terminated(c *conformance.Choices) *corev1.ContainerStateTerminated {
	end := &corev1.ContainerStateTerminated{ExitCode: conformance.Pick[int32](c, 0, 0, 1, 42, 137)}
	if c.OneIn(6) {
		end.Reason = podstatus.ReasonRestartingAllContainers
	}
	return end
}

// exitOf is the exit of a container in a pod.
type exitOf struct {
	Policy    corev1.RestartPolicy
	Container corev1.Container
	Code      int32
}

var shouldRestart = conformance.Comparison[exitOf, bool]{
	Make: func(c *conformance.Choices) exitOf {
		in := exitOf{
			Policy: conformance.Pick(c, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever, "", "Sometimes"),
			Code:   conformance.Pick[int32](c, 0, 1, 42, 137, -1),
		}
		if !c.OneIn(4) {
			policy := conformance.Pick(c, corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyOnFailure, corev1.ContainerRestartPolicyNever, "", "Sometimes")
			in.Container.RestartPolicy = &policy
		}
		for range c.Int(4) {
			rule := sceneRule(c)
			rule.Action = conformance.Pick(c, rule.Action, rule.Action, "", "Explode")
			switch c.Int(6) {
			case 5:
				rule.ExitCodes = nil
			case 4:
				rule.ExitCodes.Operator = "Near"
			case 3:
				rule.ExitCodes.Values = append(rule.ExitCodes.Values, in.Code)
			case 2:
				rule.ExitCodes.Values = nil
			}
			in.Container.RestartPolicyRules = append(in.Container.RestartPolicyRules, rule)
		}
		return in
	},
	Kubelet: func(in exitOf) bool {
		return podutil.ContainerShouldRestart(in.Container, corev1.PodSpec{RestartPolicy: in.Policy}, in.Code)
	},
	Ours: func(in exitOf) bool {
		return podview.ShouldRestart(&corev1.PodSpec{RestartPolicy: in.Policy}, &in.Container, in.Code)
	},
}
