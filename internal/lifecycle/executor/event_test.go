// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/executor"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
)

// An event names the container instance that it is about.
func TestEventsNameContainerInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, podtest.Pod("a"), setting{})
		s.startContainers("main")
		s.requireEvents("Created main uid-a-main-0", "Started main uid-a-main-0")
		require.Equal(t, "Container created", s.events[0].Message)
		require.Equal(t, "Container started", s.events[1].Message)

		require.NoError(t, s.rt.Kill("a/main", 3))
		a := s.startActions("main")
		a.StopSandboxes, a.Sandbox.Attempt, a.Start[0].Attempt = []string{"uid-a-0"}, 1, 1
		require.NoError(t, s.execute(t.Context(), a))
		s.requireEvents("SandboxChanged", "Created main uid-a-main-1 attempt 1", "Started main uid-a-main-1 attempt 1")
		require.Equal(t, "Pod sandbox changed, it will be killed and re-created.", s.events[0].Message)

		k := plan.Kill{ID: "uid-a-main-1", Name: "main", Grace: time.Second}
		require.NoError(t, s.execute(t.Context(), plan.Actions{Kill: []plan.Kill{k}}))
		s.requireEvents("Killing main uid-a-main-1 attempt 1")
		require.Equal(t, "Stopping container main", s.events[0].Message)
		k.Message = "Container main failed liveness probe, will be restarted"
		require.NoError(t, s.execute(t.Context(), plan.Actions{Kill: []plan.Kill{k}}))
		require.Equal(t, k.Message, s.events[0].Message)
	})
}

// backOffStatus returns the status of a container in CrashLoopBackOff after the given attempt.
func backOffStatus(name string, attempt, exitCode int32) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: name, RestartCount: attempt, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: exitCode, ContainerID: "containerd://" + name + "-id",
		}},
	}
}

// An event is recorded once per change of the status.
func TestRecordStatusEventsOncePerChange(t *testing.T) {
	running := corev1.ContainerStatus{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	creating := corev1.ContainerStatus{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}
	unknown := backOffStatus("main", 2, 0)
	unknown.LastTerminationState.Terminated = nil
	bare := backOffStatus("main", 2, 9)
	bare.LastTerminationState.Terminated.ContainerID = "no-runtime"
	of := func(list ...corev1.ContainerStatus) corev1.PodStatus {
		return corev1.PodStatus{ContainerStatuses: list}
	}
	ofInit := func(list ...corev1.ContainerStatus) corev1.PodStatus {
		return corev1.PodStatus{InitContainerStatuses: list}
	}
	late := corev1.PodStatus{Reason: "DeadlineExceeded", Message: "too late"}

	tests := map[string]struct {
		before, after corev1.PodStatus
		want          []string
		message       string // of the last event
	}{
		"no change":         {},
		"running":           {of(creating), of(running), nil, ""},
		"first back-off":    {of(), of(backOffStatus("main", 0, 1)), []string{"BackOff! main main-id exit code 1"}, "Back-off restarting failed container main in pod a_default(uid-a)"},
		"later back-off":    {of(running), of(backOffStatus("main", 2, 137)), []string{"BackOff! main main-id attempt 2 exit code 137"}, "Back-off restarting failed container main in pod a_default(uid-a)"},
		"still backing off": {of(backOffStatus("main", 2, 1)), of(backOffStatus("main", 2, 1)), nil, ""},
		"back-off after another waiting reason": {
			of(creating), of(backOffStatus("main", 1, 0)), []string{"BackOff! main main-id attempt 1 exit code 0"}, "Back-off restarting failed container main in pod a_default(uid-a)",
		},
		"exit code unknown":                   {of(running), of(unknown), []string{"BackOff! main attempt 2"}, "Back-off restarting failed container main in pod a_default(uid-a)"},
		"container ID without runtime prefix": {of(running), of(bare), []string{"BackOff! main no-runtime attempt 2 exit code 9"}, "Back-off restarting failed container main in pod a_default(uid-a)"},
		"init container":                      {ofInit(), ofInit(backOffStatus("setup", 0, 1)), []string{"BackOff! setup setup-id exit code 1"}, "Back-off restarting failed container setup in pod a_default(uid-a)"},
		"deadline exceeded":                   {corev1.PodStatus{}, late, []string{"DeadlineExceeded"}, "too late"},
		"deadline already exceeded":           {late, late, nil, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, podtest.Pod("a"), setting{})
			s.reporter.RecordStatusEvents(&tt.before, &tt.after)
			s.requireEvents(tt.want...)
			if len(s.events) > 0 {
				require.Equal(t, tt.message, s.events[len(s.events)-1].Message)
			}
		})
	}
}

// All hooks of Node may be nil.
func TestExecuteWithoutHooks(t *testing.T) {
	s := newScene(t, podtest.Pod("a"), setting{node: func(n *executor.Node) { n.Event = nil }})
	s.reporter.RecordWarning("Failed", executor.Subject{}, "%s", "out of order")
	s.reporter.ReportSyncError(errors.New("out of order"), time.Second)
}

func TestReportSyncErrorCallsHook(t *testing.T) {
	var reported []any
	s := newScene(t, podtest.Pod("a"), setting{node: func(n *executor.Node) {
		n.Error = func(pod cri.PodIdentity, err error, retry time.Duration) {
			reported = append(reported, pod, err, retry)
		}
	}})
	err := errors.New("out of order")
	s.reporter.ReportSyncError(err, time.Second)
	assert.Equal(t, []any{cri.PodIdentity{UID: "uid-a", Name: "a", Namespace: "default"}, err, time.Second}, reported)
}
