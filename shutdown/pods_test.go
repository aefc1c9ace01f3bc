// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package shutdown_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/shutdown"
)

// reconciler is a list of pods that records evictions.
type reconciler struct {
	pods    []lifecycle.PodState
	evicted map[string]podstatus.Eviction
	err     error
}

func (r *reconciler) Pods() []lifecycle.PodState { return r.pods }

func (r *reconciler) Evict(_ context.Context, uid string, e podstatus.Eviction) error {
	r.evicted[uid] = e
	return r.err
}

func TestNewForPodsStopsPodsThatHaveNotTerminated(t *testing.T) {
	running, done, static := pod("running", 0, 30), pod("done", 0, 30), pod("static", 0, 30)
	running.UID, static.UID = "running", "static"
	static.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	r := &reconciler{evicted: map[string]podstatus.Eviction{}, pods: []lifecycle.PodState{
		{Spec: running}, {Spec: done, Status: &corev1.PodStatus{Phase: corev1.PodSucceeded}}, {}, {Spec: static},
	}}
	pods, stop := shutdown.PodsOf(r)
	require.Equal(t, []*corev1.Pod{running, static}, pods())

	require.NoError(t, stop(t.Context(), running, 7*time.Second))
	e := r.evicted["running"]
	require.Equal(t, shutdown.ReasonTerminated, e.Reason)
	require.Equal(t, 7*time.Second, e.Grace)
	require.Equal(t, corev1.DisruptionTarget, e.Conditions[0].Type)
	require.False(t, e.Temporary)
	require.NoError(t, stop(t.Context(), static, time.Second))
	require.True(t, r.evicted["static"].Temporary, "a static pod is evicted temporarily: it starts again after the reboot")

	r.err = fmt.Errorf("evict: %w", cri.ErrNotFound)
	require.NoError(t, stop(t.Context(), running, 0), "a pod that has terminated is no error")
	r.err = errors.New("hung")
	require.EqualError(t, stop(t.Context(), running, 0), "hung")
}

func TestNewForPodsRefusesNil(t *testing.T) {
	_, err := shutdown.NewForPods(nil, shutdown.Options{})
	require.ErrorContains(t, err, "the reconciler is nil")
}

func TestAdmitRejectsPodsWhileTheMachineShutsDown(t *testing.T) {
	inhibitor, err := shutdown.NewForPods(&reconciler{}, shutdown.Options{Periods: shutdown.Periods(time.Minute, 0)})
	require.NoError(t, err)
	web, static := pod("web", 0, 30), pod("static", 0, 30)
	static.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	require.NoError(t, inhibitor.Admit(t.Context(), web, nil))
	shutdown.SetShuttingDown(inhibitor)
	rejection, ok := errors.AsType[*podstatus.Rejection](inhibitor.Admit(t.Context(), web, nil))
	require.True(t, ok)
	require.Equal(t, shutdown.ReasonRejected, rejection.Reason)
	err = inhibitor.Admit(t.Context(), static, nil)
	require.EqualError(t, err, "the machine is shutting down")
	_, ok = errors.AsType[*podstatus.Rejection](err)
	require.False(t, ok, "a static pod is not rejected, but waits for the reboot")
}
