// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/statuspatch"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

// replaceContainer starts a pod and changes the image of its container, whose pull takes a while or fails. It returns the
// statuses that an API server gets: each status is merged into the previous one.
func replaceContainer(t *testing.T, policy corev1.RestartPolicy, code int32, pullError error) (states []string, last corev1.PodStatus) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{
			Script: func(*cri.ContainerConfig) critest.Script { return critest.Script{Stop: &critest.Exit{Code: code}} },
			Images: []cri.Image{}, Pull: func(_ context.Context, s cri.ImageSpec, _ *cri.Auth) (cri.Image, error) {
				time.Sleep(20 * time.Second)
				if s.Image == "busybox:2" && pullError != nil {
					return cri.Image{}, pullError
				}
				return cri.Image{ID: s.Image, RepoTags: []string{s.Image}}, nil
			},
		})
		r, stop := run(t, rt, lifecycle.Options{Owner: "me", Hooks: lifecycle.Hooks{StatusChanged: func(pod *corev1.Pod, st *corev1.PodStatus) {
			at := *pod
			at.Status = last
			next, err := statuspatch.Next(&at, st, false, time.Now())
			assert.NoError(t, err)
			last = next.Status
			if state := podtest.Describe(*st); len(states) == 0 || states[len(states)-1] != state {
				states = append(states, state)
			}
		}}})
		pod := podtest.Pod("a")
		pod.Spec.RestartPolicy, pod.Spec.Containers[0].Image = policy, "busybox:1"
		podapi.Default(pod)
		require.NoError(t, r.Set(lifecycle.PodSet{Source: "file", Pods: []*corev1.Pod{pod}}))
		time.Sleep(time.Minute)
		synctest.Wait()
		states = nil
		pod = pod.DeepCopy()
		pod.Spec.Containers[0].Image = "busybox:2"
		require.NoError(t, r.Set(lifecycle.PodSet{Source: "file", Pods: []*corev1.Pod{pod}}))
		time.Sleep(10 * time.Minute)
		stop()
	})
	return states, last
}

// A container whose image changes is replaced regardless of its restart policy, and stays ready until its successor runs,
// because the kubelet computes no status in between. It must not be published as terminated: an API server would refuse all
// later statuses.
func TestReplacedContainerStaysReadyUntilSuccessorRuns(t *testing.T) {
	for _, test := range []struct {
		policy corev1.RestartPolicy
		code   int32
	}{
		{corev1.RestartPolicyNever, 0},
		{corev1.RestartPolicyNever, 137},
		{corev1.RestartPolicyOnFailure, 0},
		{corev1.RestartPolicyOnFailure, 3},
		{corev1.RestartPolicyAlways, 0},
	} {
		states, last := replaceContainer(t, test.policy, test.code, nil)
		assert.Equal(t, []string{"Running, main: ready x1"}, states, "%s %d", test.policy, test.code)
		require.NotNil(t, last.ContainerStatuses[0].LastTerminationState.Terminated)
		assert.Equal(t, test.code, last.ContainerStatuses[0].LastTerminationState.Terminated.ExitCode)
	}
}

// If the image of the successor cannot be pulled, the status reports the error. If the restart policy does not restart the
// container, the pod then terminates, as in the kubelet.
func TestReplacedContainerWithoutImage(t *testing.T) {
	none := errors.New("not found")
	states, last := replaceContainer(t, corev1.RestartPolicyNever, 3, none)
	assert.Equal(t, []string{"Running, main: exited 3", "Failed, main: exited 3"}, states)
	assert.EqualValues(t, 3, last.ContainerStatuses[0].State.Terminated.ExitCode)

	states, last = replaceContainer(t, corev1.RestartPolicyAlways, 3, none)
	require.Greater(t, len(states), 1)
	assert.Equal(t, []string{"Running, main: ErrImagePull", "Running, main: ImagePullBackOff"}, states[:2])
	assert.EqualValues(t, 3, last.ContainerStatuses[0].LastTerminationState.Terminated.ExitCode)
}
