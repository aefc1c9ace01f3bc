// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package statuspatch_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/statuspatch"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// now has a fraction of a second, which the API server drops.
var now = time.Date(2026, 5, 1, 12, 0, 0, 123456789, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.Time{Time: now.Add(-d)}.Rfc3339Copy() }

func condition(t corev1.PodConditionType, status corev1.ConditionStatus, reason string, since time.Duration) corev1.PodCondition {
	return corev1.PodCondition{Type: t, Status: status, Reason: reason, LastTransitionTime: ago(since)}
}

// runningPod returns a running pod as the API server stores it.
func runningPod() *corev1.Pod {
	start := ago(time.Minute)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u1", Generation: 3},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main"}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, StartTime: &start, PodIP: "10.0.0.7", PodIPs: []corev1.PodIP{{IP: "10.0.0.7"}},
			Conditions: []corev1.PodCondition{
				condition("example.com/gate", corev1.ConditionTrue, "", time.Hour),
				condition(corev1.PodReady, corev1.ConditionTrue, "", time.Minute),
				condition(corev1.ContainersReady, corev1.ConditionTrue, "", time.Minute),
			},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "main", Ready: true, State: corev1.ContainerState{
				Running: &corev1.ContainerStateRunning{StartedAt: start},
			}}},
			ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{Name: "gpu"}},
		},
	}
}

// computedStatus returns the status of pod as its agent computes it: without the fields of other clients, and with fractions of a
// second.
func computedStatus(pod *corev1.Pod) *corev1.PodStatus {
	st := pod.Status.DeepCopy()
	st.ResourceClaimStatuses = nil
	st.Conditions = st.Conditions[1:]
	for i := range st.ContainerStatuses {
		if r := st.ContainerStatuses[i].State.Running; r != nil {
			r.StartedAt.Time = r.StartedAt.Add(7 * time.Millisecond)
		}
	}
	return st
}

func TestNextReturnsNoPatchForUnchangedStatus(t *testing.T) {
	pod := runningPod()
	st := computedStatus(pod)
	st.Conditions[0].ObservedGeneration = 3 // not compared
	st.Conditions[0].LastTransitionTime = metav1.Time{Time: now}
	update, err := statuspatch.Next(pod, st, false, now)
	require.NoError(t, err)
	assert.Nil(t, update.Patch, string(update.Patch))
	assert.Equal(t, pod.Status.ResourceClaimStatuses, update.Status.ResourceClaimStatuses)
	assert.Equal(t, runningPod(), pod, "Next does not modify the pod")
}

func TestNextPatchesReadyCondition(t *testing.T) {
	pod := runningPod()
	st := computedStatus(pod)
	st.Conditions[0] = corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady"}
	update, err := statuspatch.Next(pod, st, false, now)
	require.NoError(t, err)
	assert.JSONEq(t, `{"metadata":{"uid":"u1"},"status":{
		"$setElementOrder/conditions":[{"type":"example.com/gate"},{"type":"Ready"},{"type":"ContainersReady"}],
		"conditions":[{"type":"Ready","status":"False","reason":"ContainersNotReady","lastTransitionTime":"2026-05-01T12:00:00Z"}]}}`, string(update.Patch))
	assert.Equal(t, corev1.PodConditionType("example.com/gate"), update.Status.Conditions[0].Type)
}

func TestNextDeletesRemovedFields(t *testing.T) {
	pod := runningPod()
	pod.Status.Reason, pod.Status.HostIPs = "Slow", []corev1.HostIP{{IP: "1.2.3.4"}}
	st := computedStatus(pod)
	st.Reason, st.PodIP, st.PodIPs, st.HostIPs = "", "10.0.0.8", []corev1.PodIP{{IP: "10.0.0.8"}}, nil
	update, err := statuspatch.Next(pod, st, false, now)
	require.NoError(t, err)
	assert.JSONEq(t, `{"metadata":{"uid":"u1"},"status":{"reason":null,"hostIPs":null,"podIP":"10.0.0.8",
		"$setElementOrder/podIPs":[{"ip":"10.0.0.8"}],"podIPs":[{"ip":"10.0.0.8"},{"$patch":"delete","ip":"10.0.0.7"}]}}`, string(update.Patch))
}

func TestMergeDefersTerminalPhase(t *testing.T) {
	disruption := condition(corev1.DisruptionTarget, corev1.ConditionTrue, "TerminationByKubelet", time.Minute)
	for name, test := range map[string]struct {
		phase, server  corev1.PodPhase
		mayRun         bool
		want           corev1.PodPhase
		ready          string // reason of the condition Ready
		disrupted      bool
		serversReasons bool
	}{
		"succeeded":                        {phase: corev1.PodSucceeded, server: corev1.PodRunning, want: corev1.PodSucceeded, ready: "PodCompleted", disrupted: true},
		"failed":                           {phase: corev1.PodFailed, server: corev1.PodRunning, want: corev1.PodFailed, ready: "PodFailed", disrupted: true},
		"failed, container may run":        {phase: corev1.PodFailed, server: corev1.PodRunning, mayRun: true, want: corev1.PodRunning, serversReasons: true},
		"failed before, container may run": {phase: corev1.PodFailed, server: corev1.PodFailed, mayRun: true, want: corev1.PodFailed, ready: "PodFailed"},
		"still running":                    {phase: corev1.PodRunning, server: corev1.PodRunning, want: corev1.PodRunning},
	} {
		t.Run(name, func(t *testing.T) {
			pod := runningPod()
			pod.Status.Phase, pod.Status.Reason = test.server, "Before"
			st := computedStatus(pod)
			st.Phase, st.Reason = test.phase, "Now"
			st.Conditions = append(st.Conditions, disruption)
			update, err := statuspatch.Next(pod, st, test.mayRun, now)
			require.NoError(t, err)
			status := update.Status
			assert.Equal(t, test.want, status.Phase)
			assert.Equal(t, test.serversReasons, status.Reason == "Before", status.Reason)
			assert.Equal(t, test.disrupted, podstatus.FindCondition(status.Conditions, corev1.DisruptionTarget) != nil)
			ready := podstatus.FindCondition(status.Conditions, corev1.PodReady)
			assert.Equal(t, test.ready, ready.Reason)
			assert.Equal(t, test.ready == "", ready.Status == corev1.ConditionTrue)
		})
	}
}

func TestAcceptKeepsTerminatedState(t *testing.T) {
	exited := func(code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}
	}
	always, never := corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever
	for name, test := range map[string]struct {
		policy corev1.RestartPolicy
		code   int32
		change func(*corev1.Container)
		init   bool
		want   string
	}{
		"never":                          {policy: corev1.RestartPolicyNever, want: `status of pod default/web: container "main" has left its terminated state (exit code 0) although it must not restart`},
		"never, init container":          {policy: corev1.RestartPolicyNever, code: 1, init: true, want: `status of pod default/web: init container "main" has left its terminated state (exit code 1) although it must not restart`},
		"on failure, exit code 0":        {policy: corev1.RestartPolicyOnFailure, want: "must not restart"},
		"on failure, exit code 1":        {policy: corev1.RestartPolicyOnFailure, code: 1},
		"always":                         {policy: corev1.RestartPolicyAlways},
		"container policy never":         {policy: corev1.RestartPolicyAlways, change: func(c *corev1.Container) { c.RestartPolicy = &never }, want: "must not restart"},
		"container policy always":        {policy: corev1.RestartPolicyNever, change: func(c *corev1.Container) { c.RestartPolicy = &always }},
		"sidecar":                        {policy: corev1.RestartPolicyNever, init: true, change: func(c *corev1.Container) { c.RestartPolicy = &always }},
		"init container missing in spec": {policy: corev1.RestartPolicyNever, init: true, change: func(c *corev1.Container) { c.Name = "other" }, want: "is not at its position in the spec"},
		"restart-all rule": {policy: corev1.RestartPolicyNever, change: func(c *corev1.Container) {
			c.RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := runningPod()
			pod.Spec.RestartPolicy = test.policy
			if test.init {
				pod.Spec.InitContainers, pod.Status.InitContainerStatuses = pod.Spec.Containers, pod.Status.ContainerStatuses
				pod.Spec.Containers, pod.Status.ContainerStatuses = nil, nil
			}
			st := computedStatus(pod)
			lists := append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...)
			specs := append(pod.Spec.InitContainers, pod.Spec.Containers...)
			lists[0].State = exited(test.code)
			if test.change != nil {
				test.change(&specs[0])
			}
			pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses = nil, lists
			pod.Spec.InitContainers, pod.Spec.Containers = nil, specs
			if test.init {
				pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses = lists, nil
				pod.Spec.InitContainers, pod.Spec.Containers = specs, nil
			}
			st.Message = "now"
			update, err := statuspatch.Next(pod, st, false, now)
			if test.want == "" {
				require.NoError(t, err)
				assert.NotNil(t, update.Patch)
				return
			}
			require.ErrorContains(t, err, test.want)
			_, ok := errors.AsType[*statuspatch.TransitionError](err)
			require.True(t, ok)
			status := update.Status
			kept := append(status.InitContainerStatuses, status.ContainerStatuses...)
			assert.Equal(t, exited(test.code), kept[0].State, "the API server accepts only the previous state")
			assert.Equal(t, "now", status.Message)
			assert.Contains(t, string(update.Patch), `"message":"now"`, "the other changes are sent")

			pod.Status = status
			update, err = statuspatch.Next(pod, st, false, now)
			require.Error(t, err)
			assert.Nil(t, update.Patch, "the refused state is not sent repeatedly")
		})
	}
}

func TestAcceptKeepsTimesAndVolumeHealth(t *testing.T) {
	pod := runningPod()
	before := pod.Status.DeepCopy()
	before.ObservedGeneration = 7
	before.VolumeHealth = []corev1.PodVolumeHealth{{Name: "data"}}
	st := computedStatus(pod)
	st.StartTime, st.ObservedGeneration = nil, 3
	st.Conditions[0].LastTransitionTime = metav1.Time{}
	st.Conditions[1].Status, st.Conditions[1].LastTransitionTime = corev1.ConditionFalse, metav1.Time{}
	got, err := statuspatch.Accept(pod, before, st, now)
	require.NoError(t, err)
	assert.Equal(t, before.StartTime, got.StartTime)
	assert.EqualValues(t, 7, got.ObservedGeneration)
	assert.Equal(t, before.VolumeHealth, got.VolumeHealth)
	assert.Equal(t, ago(time.Minute), got.Conditions[0].LastTransitionTime, "an unchanged condition keeps its transition time")
	assert.Equal(t, ago(0), got.Conditions[1].LastTransitionTime, "times are truncated to seconds")

	got, err = statuspatch.Accept(pod, &corev1.PodStatus{}, st, now)
	require.NoError(t, err)
	assert.Equal(t, ago(0), *got.StartTime, "a pod without a start time starts now")
}

func TestAcceptSortsContainersAndCutsMessages(t *testing.T) {
	ended := func(message string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: message}}
	}
	pod := runningPod()
	pod.Spec.InitContainers = []corev1.Container{{Name: "z"}, {Name: "a"}}
	st := &corev1.PodStatus{
		InitContainerStatuses: []corev1.ContainerStatus{{Name: "x"}, {Name: "a"}, {Name: "z", State: ended(strings.Repeat("ü", 4096))}},
		ContainerStatuses:     []corev1.ContainerStatus{{Name: "n"}, {Name: "m", LastTerminationState: ended("a\xffb")}},
	}
	got, err := statuspatch.Accept(pod, &corev1.PodStatus{}, st, now)
	require.NoError(t, err)
	names := ""
	for _, list := range [][]corev1.ContainerStatus{got.InitContainerStatuses, got.ContainerStatuses} {
		for i := range list {
			names += list[i].Name
		}
	}
	assert.Equal(t, "zaxmn", names)
	message := got.InitContainerStatuses[0].State.Terminated.Message
	assert.Len(t, message, 4096, "a third of the limit of 12 KiB")
	assert.True(t, utf8.ValidString(message))
	assert.Equal(t, "a�b", got.ContainerStatuses[0].LastTerminationState.Terminated.Message)
	assert.Equal(t, "n", st.ContainerStatuses[0].Name, "Accept does not modify its argument")
}

func TestEqualIgnoresConditionsOfOtherClients(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*corev1.PodStatus)
		want   bool
	}{
		"no change":                   {func(*corev1.PodStatus) {}, true},
		"condition of another client": {func(s *corev1.PodStatus) { s.Conditions[0].Status = "Unknown" }, true},
		"claims":                      {func(s *corev1.PodStatus) { s.ResourceClaimStatuses = nil }, true},
		"condition time":              {func(s *corev1.PodStatus) { s.Conditions[1].LastTransitionTime = ago(0) }, true},
		"condition order":             {func(s *corev1.PodStatus) { s.Conditions[1], s.Conditions[2] = s.Conditions[2], s.Conditions[1] }, true},
		"condition message":           {func(s *corev1.PodStatus) { s.Conditions[1].Message = "x" }, false},
		"condition removed":           {func(s *corev1.PodStatus) { s.Conditions = s.Conditions[:2] }, false},
		"shared condition": {func(s *corev1.PodStatus) {
			s.Conditions = append(s.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget})
		}, false},
		"observed generation": {func(s *corev1.PodStatus) { s.ObservedGeneration++ }, false},
		"container readiness": {func(s *corev1.PodStatus) { s.ContainerStatuses[0].Ready = false }, false},
	} {
		a, b := runningPod().Status, runningPod().Status
		test.change(&b)
		assert.Equal(t, test.want, statuspatch.Equal(&a, &b), name)
		assert.Equal(t, test.want, statuspatch.Equal(&b, &a), name)
	}
	a, b := runningPod().Status, runningPod().Status
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { statuspatch.Equal(&a, &b) }), 2.0, "Equal is called for each pod and must be cheap")
}
