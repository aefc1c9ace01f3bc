// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/executor"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// requireResizeEvent fails unless exactly one event with this reason and message was recorded since the last call.
func (s *scene) requireResizeEvent(reason, message string) {
	s.t.Helper()
	s.requireEvents(reason)
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Equal(s.t, message, s.events[0].Message)
	s.events = nil
}

// podWithInit returns a pod with an init container and a regular container with CPU requests.
func podWithInit(generation int64, cpu string) *corev1.Pod {
	pod := sizedPod(generation, "cpu="+cpu)
	pod.Spec.InitContainers = []corev1.Container{podtest.Init("setup")}
	return pod
}

func TestResizeEventMessagesOfKubelet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full error
		s := newScene(t, podWithInit(1, "100m/200m"), setting{node: func(n *executor.Node) {
			n.AdmitResize = func(*corev1.Pod) error { return full }
		}})
		s.decide()
		s.startContainers("main")
		s.events = nil

		s.pod = podWithInit(2, "200m/400m")
		a := s.decide()
		const pod2 = `"initContainers":[{"name":"setup","resources":{}}],` +
			`"containers":[{"name":"main","resources":{"limits":{"cpu":"400m"},"requests":{"cpu":"200m"}}}],"generation":2`
		s.requireResizeEvent("ResizeStarted", `Pod resize started: {`+pod2+`}`)
		s.decide()
		s.requireEvents()

		s.setFault("UpdateContainerResources", errors.New("out of order"))
		require.Error(t, s.execute(t.Context(), a))
		s.requireResizeEvent("ResizeError!", `Pod resize error: {`+pod2+`,"error":"resize container main: out of order"}`)
		s.decide()
		require.Error(t, s.execute(t.Context(), s.decide()))
		s.requireEvents()

		s.setFault("UpdateContainerResources", nil)
		require.NoError(t, s.execute(t.Context(), s.decide()))
		s.requireEvents()
		s.decide()
		s.requireResizeEvent("ResizeCompleted", `Pod resize completed: {`+pod2+`}`)

		full = &podstatus.Rejection{Reason: "OutOfcpu", Message: "the node is full"}
		s.pod = podWithInit(3, "4/8")
		s.decide()
		s.requireResizeEvent("ResizeDeferred!", `Pod resize OutOfcpu: {"initContainers":[{"name":"setup","resources":{}}],`+
			`"containers":[{"name":"main","resources":{"limits":{"cpu":"8"},"requests":{"cpu":"4"}}}],"generation":3,"error":"the node is full"}`)
		s.decide()
		s.requireEvents()
		full = &podstatus.Rejection{Reason: "OutOfmemory", Message: "no memory either"}
		s.decide()
		s.requireEvents() // the resize is still deferred
		s.pod = podWithInit(4, "8/16")
		s.decide()
		s.requireEvents("ResizeDeferred!")
		s.events = nil

		full = &podstatus.Rejection{Reason: corev1.PodReasonInfeasible, Message: "never"}
		s.decide()
		s.requireResizeEvent("ResizeInfeasible!", `Pod resize Infeasible: {"initContainers":[{"name":"setup","resources":{}}],`+
			`"containers":[{"name":"main","resources":{"limits":{"cpu":"16"},"requests":{"cpu":"8"}}}],"generation":4,"error":"never"}`)

		s.pod = podWithInit(5, "200m/400m") // the current resources
		s.decide()
		s.requireEvents()
	})
}

// A pod without running containers gets the resources at once, and no resize is in progress.
func TestResizeOfPodWithoutContainersCompletesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, sizedPod(1, "cpu=100m/200m"), setting{})
		s.decide()
		s.requireEvents()
		s.pod = sizedPod(2, "cpu=200m/400m")
		s.decide()
		s.requireEvents("ResizeStarted", "ResizeCompleted")
	})
}

// A restarted agent continues from the conditions of the published status.
func TestResizeEventsNotRepeatedByRestartedAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("the node is full")
		root := t.TempDir()
		s := newScene(t, sizedPod(1, "cpu=100m/200m"), setting{node: func(n *executor.Node) {
			n.PodRoot = root
			n.AdmitResize = func(*corev1.Pod) error { return full }
		}})
		s.decide()
		s.startContainers("main")
		s.events, s.pod = nil, sizedPod(2, "cpu=200m/400m")
		require.NoError(t, s.record.Update(func(now *poddir.Record) {
			s.x.Resizer.WriteRecord(now)
			now.Status = &corev1.PodStatus{Conditions: []corev1.PodCondition{{
				Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred,
				ObservedGeneration: 2, LastTransitionTime: metav1.Now(),
			}}}
		}))
		s.createExecutor()
		s.x.Resizer.Restore(s.record.Get())
		s.decide()
		s.requireEvents()
		full = nil
		a := s.decide()
		s.requireEvents("ResizeStarted")
		require.NoError(t, s.execute(t.Context(), a))

		// The agent dies before it observes that the resize is complete.
		require.NoError(t, s.record.Update(func(now *poddir.Record) {
			s.x.Resizer.WriteRecord(now)
			now.Status = &corev1.PodStatus{Conditions: []corev1.PodCondition{{
				Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue, ObservedGeneration: 2, LastTransitionTime: metav1.Now(),
			}}}
		}))
		s.createExecutor()
		s.x.Resizer.Restore(s.record.Get())
		s.pod = sizedPod(7, "cpu=200m/400m")
		s.decide()
		s.requireResizeEvent("ResizeCompleted",
			`Pod resize completed: {"containers":[{"name":"main","resources":{"limits":{"cpu":"400m"},"requests":{"cpu":"200m"}}}],"generation":2}`)
	})
}
