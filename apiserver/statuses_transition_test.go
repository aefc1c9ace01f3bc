// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/internal/lifecycle/statuspatch"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// A container that leaves a terminated state is reported once, and the rest of its pod's status is still sent.
func TestContradictingStatusIsSentWithoutTheContradiction(t *testing.T) {
	runWithStatuses(t, apiserver.StatusesOptions{}, func(t *testing.T, r *reporting) {
		pod := r.bindPod("web", func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever })
		say := func(state corev1.ContainerState, message string) *corev1.PodStatus {
			st := &corev1.PodStatus{
				Phase: corev1.PodRunning, Message: message, QOSClass: corev1.PodQOSBestEffort,
				ContainerStatuses: []corev1.ContainerStatus{{Name: "main", Image: "image", State: state}},
			}
			r.locked(func() { r.states["uid-web"] = lifecycle.PodState{Pod: identity(pod), Spec: pod, Status: st} })
			r.statuses.Changed(nil, nil)
			time.Sleep(time.Minute)
			return &r.getPod("web").Status
		}
		exited := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}}
		runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		require.Equal(t, "first", say(exited, "first").Message)
		for _, message := range []string{"second", "third"} {
			st := say(runs, message)
			assert.Equal(t, message, st.Message)
			assert.Equal(t, exited, st.ContainerStatuses[0].State, "the API server rejects a terminated container that runs again")
		}
		require.Len(t, r.errs, 1)
		var contradiction *statuspatch.TransitionError
		require.ErrorAs(t, r.errs[0], &contradiction)
		assert.Equal(t, "main", contradiction.Container)
		assert.Zero(t, r.statuses.Pending())
	})
}
