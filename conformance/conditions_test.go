// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/status"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/probe"
)

func TestConditions(t *testing.T) { run(t, podConditions) }
func FuzzConditions(f *testing.F) { fuzz(f, podConditions) }

// reported is a scene with the previous status of its pod.
type reported struct {
	Scene    scene
	Previous *corev1.PodStatus
	Waiting  map[string]podstatus.Waiting
	Deleted  bool
}

// conditionState is a condition without its times.
type conditionState struct {
	Status             corev1.ConditionStatus
	Reason, Message    string
	ObservedGeneration int64
}

var podConditions = conformance.Comparison[reported, map[corev1.PodConditionType]conditionState]{
	Make: func(c *conformance.Choices) reported {
		in := reported{Scene: newScene(c), Previous: &corev1.PodStatus{}, Waiting: map[string]podstatus.Waiting{}}
		in.Scene.Pod.Generation = 7
		in.Deleted = in.Scene.Pod.DeletionTimestamp != nil
		for _, gate := range []corev1.PodConditionType{"example.com/a", "example.com/b"}[:conformance.Pick(c, 0, 0, 1, 2)] {
			in.Scene.Pod.Spec.ReadinessGates = append(in.Scene.Pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: gate})
		}
		some := func(kinds ...corev1.PodConditionType) (list []corev1.PodCondition) {
			for _, kind := range kinds {
				if c.OneIn(2) {
					list = append(list, corev1.PodCondition{
						Type: kind, Status: conformance.Pick(c, corev1.ConditionTrue, corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown),
					})
				}
			}
			return list
		}
		in.Previous.Conditions = some(corev1.PodInitialized)
		in.Scene.Pod.Status.Conditions = some("example.com/a", "example.com/b")
		in.Previous.Phase = conformance.Pick(c, corev1.PodPending, corev1.PodRunning, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed)
		for _, spec := range in.Scene.specs() {
			if c.OneIn(6) {
				in.Waiting[spec.Name] = podstatus.Waiting{Reason: podstatus.ReasonCrashLoopBackOff}
			}
		}
		return in
	},
	Kubelet: kubeletConditions,
	Ours: func(in reported) map[corev1.PodConditionType]conditionState {
		st := in.status()
		return agentConditions(st.Conditions)
	},
	Exceptions: []conformance.Exception[reported, map[corev1.PodConditionType]conditionState]{{
		Name:   "generation",
		Reason: "the condition AllContainersRestarting has an observedGeneration, like all other conditions",
		When:   func(reported) bool { return true },
		Want: func(_ reported, conditions map[corev1.PodConditionType]conditionState) map[corev1.PodConditionType]conditionState {
			if c, ok := conditions[corev1.AllContainersRestarting]; ok {
				c.ObservedGeneration = 7
				conditions[corev1.AllContainersRestarting] = c
			}
			return conditions
		},
	}},
}

// status returns the pod status of nodeagent.
func (in reported) status() corev1.PodStatus {
	return podstatus.Of(in.Scene.Pod, in.Scene.Observed, podstatus.Input{
		Now: sceneTime, Previous: in.Previous, Waiting: in.Waiting, Deleted: in.Deleted,
		Probes: func(k probe.Key) (probe.Value, bool) { return in.Scene.probeResults(k) },
	})
}

// kubeletConditions computes the kubelet's conditions from the phase and the container statuses of nodeagent, and from the
// runtime.
func kubeletConditions(in reported) map[corev1.PodConditionType]conditionState {
	ctx := context.Background()
	pod, st := in.Scene.Pod, in.status()
	seen := podStatus(ctx, newRuntimeOf(in.Scene).manager(ctx, in.Scene), in.Scene)
	containers := slices.Concat(st.InitContainerStatuses, st.ContainerStatuses)
	if in.Deleted && !podstatus.IsTerminal(in.Previous.Phase) { // TerminatePod later sets the phase of a pod that has not run
		st.Phase = podstatus.Phase(pod, containers, podstatus.PhaseInput{
			Deleted: true, Initialized: kubecontainer.HasAnyActiveRegularContainerStarted(&pod.Spec, seen),
		})
	}
	list := []corev1.PodCondition{
		status.GeneratePodReadyToStartContainersCondition(pod, in.Previous, seen),
		status.GeneratePodInitializedCondition(pod, in.Previous, containers, st.Phase),
		status.GeneratePodReadyCondition(pod, in.Previous, pod.Status.Conditions, containers, st.Phase),
		status.GenerateContainersReadyCondition(pod, in.Previous, containers, st.Phase),
	}
	if podutil.AllContainersCouldRestart(&pod.Spec) {
		list = append(list, status.GenerateAllContainersRestartingCondition(pod, seen, in.Previous, st.Phase))
	}
	return agentConditions(list)
}

// agentConditions returns the conditions in list that a node agent sets.
func agentConditions(list []corev1.PodCondition) map[corev1.PodConditionType]conditionState {
	out := map[corev1.PodConditionType]conditionState{}
	for _, c := range list {
		switch c.Type {
		case corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.AllContainersRestarting:
			out[c.Type] = conditionState{c.Status, c.Reason, c.Message, c.ObservedGeneration}
		}
	}
	return out
}
