// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/images"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/objects"
)

// unreachableObjects is an Objects whose secrets cannot be read.
type unreachableObjects struct{ objects.Memory }

func (*unreachableObjects) Secret(context.Context, string, string) (*corev1.Secret, error) {
	return nil, errors.New("no network")
}

// A node without network runs pods with present images, although their pull secrets cannot be read.
func TestUnreadableSecretsDoNotStopPresentImages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Images: []cri.Image{{ID: "sha256:1", RepoTags: []string{"present:1"}, Size: 1}}})
		n := startAgent(t, rt, rt, lifecycle.Options{Objects: &unreachableObjects{}})
		present, absent := podtest.Pod("present"), podtest.Pod("absent")
		for image, pod := range map[string]*corev1.Pod{"present:1": present, "absent:1": absent} {
			pod.Spec.Containers[0].Image, pod.Spec.Containers[0].ImagePullPolicy = image, corev1.PullNever
			pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{}, {Name: "login"}}
		}
		n.set(present, absent)
		time.Sleep(time.Second)
		n.requireStatus("present", "Running, main: ready")
		n.requireStatus("absent", "Pending, main: ErrImageNeverPull")
		require.Equal(t, `Container image "absent:1" is not present with pull policy of Never (not tried: no network)`,
			n.status("absent").ContainerStatuses[0].State.Waiting.Message)
	})
}

// podWithPull returns a pod whose image must be pulled.
func podWithPull(name, image string) *corev1.Pod {
	pod := podtest.Pod(name)
	pod.Spec.Containers[0].Image, pod.Spec.Containers[0].ImagePullPolicy = image, corev1.PullAlways
	return pod
}

// awaitRunning waits until all of these pods run, fails after most, and returns the duration.
func (n *node) awaitRunning(most time.Duration, names ...string) time.Duration {
	n.t.Helper()
	began := time.Now()
	for _, name := range names {
		for {
			n.mu.Lock()
			st := n.statuses[name]
			n.mu.Unlock()
			if st != nil && st.Phase == corev1.PodRunning {
				break
			}
			require.Less(n.t, time.Since(began), most, "pod %s does not run: %v", name, st)
			time.Sleep(10 * time.Millisecond)
		}
	}
	return time.Since(began)
}

// 50 pods that pull at once wait for the rate limit only: ten start at once and five each second, without back-off.
func TestPullsOfManyPodsWaitForRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Images: []cri.Image{}})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		var pods []*corev1.Pod
		var names []string
		for i := range 50 {
			pods = append(pods, podWithPull(fmt.Sprint("p", i), fmt.Sprint("r.io/app:", i)))
			names = append(names, pods[i].Name)
		}
		n.set(pods...)
		took := n.awaitRunning(9*time.Second, names...)
		require.GreaterOrEqual(t, took, 8*time.Second, "the last pull waits for the rate limit: (50-10)/5 s")
		require.Empty(t, n.errs)
	})
}

// At most Parallel pods start at a time, even if their pulls complete at the same time, or if a previous pull of the pod
// failed.
func TestParallelLimitsStartsAfterPulls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{
			Images: []cri.Image{critest.NewImage("present:1", 1)},
			Pull: func(_ context.Context, i cri.ImageSpec, _ *cri.Auth) (cri.Image, error) {
				time.Sleep(2 * time.Second)
				if strings.Contains(i.Image, "bad") {
					return cri.Image{}, errors.New("no such image")
				}
				return critest.NewImage(i.Image, 1), nil
			},
		})

		var creating, most atomic.Int32
		f := &critest.Faults{Runtime: rt}
		f.CreateContainerFunc = func(
			ctx context.Context, next cri.Runtime, sandbox string, c *cri.ContainerConfig, s *cri.SandboxConfig,
		) (string, error) {
			if n := creating.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer creating.Add(-1)
			time.Sleep(time.Second)
			return next.CreateContainer(ctx, sandbox, c, s)
		}

		puller, err := images.New(rt, rt, images.Options{Parallel: 50, QPS: -1})
		require.NoError(t, err)
		n := startAgent(t, rt, f, lifecycle.Options{Pacing: lifecycle.Pacing{Parallel: 3}, Images: lifecycle.Images{Puller: puller}})
		var pods []*corev1.Pod
		for i := range 12 {
			pod := podWithPull(fmt.Sprint("p", i), fmt.Sprint("r.io/app:", i))
			if i%2 == 0 {
				pod = podtest.Pod(pod.Name, "bad", "main")
				pod.Spec.Containers[0].Image = "r.io/bad:1"
				pod.Spec.Containers[1].Image, pod.Spec.Containers[1].ImagePullPolicy = "present:1", corev1.PullIfNotPresent
			}
			pods = append(pods, pod)
		}

		n.set(pods...)
		time.Sleep(9 * time.Second)
		require.Equal(t, 12, ops(rt, "StartContainer"))
		require.EqualValues(t, 3, most.Load())
	})
}

// During the back-off of a pull the status has ImagePullBackOff, not ErrImagePull.
func TestStatusHasImagePullBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{
			Images: []cri.Image{},
			Pull: func(context.Context, cri.ImageSpec, *cri.Auth) (cri.Image, error) {
				time.Sleep(2 * time.Second) // events of the runtime cause no earlier retry
				return cri.Image{}, errors.New("registry says no")
			},
		})
		n := startAgent(t, rt, rt, lifecycle.Options{Pacing: lifecycle.Pacing{Rand: func() float64 { return 0 }}})
		n.set(podWithPull("a", "r.io/app:1"))
		time.Sleep(2500 * time.Millisecond)
		n.requireStatus("a", "Pending, main: ErrImagePull")
		time.Sleep(2 * time.Second)
		n.requireStatus("a", "Pending, main: ImagePullBackOff")
		require.Equal(t, 1, ops(rt, "PullImage"))
		time.Sleep(8 * time.Second)
		require.Equal(t, 2, ops(rt, "PullImage"), "second pull follows ten seconds after the first failure")
	})
}

// Pulls that hang delay neither the pulls of other pods nor the start of pods with present images.
func TestHungPullsDelayNoOtherPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{
			Images: []cri.Image{critest.NewImage("present:1", 1)},
			Pull: func(ctx context.Context, i cri.ImageSpec, _ *cri.Auth) (cri.Image, error) {
				if strings.Contains(i.Image, "hung") {
					return cri.Image{}, critest.Hang(ctx)
				}
				return critest.NewImage(i.Image, 1), nil
			},
		})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		var pods []*corev1.Pod
		for i := range 10 {
			pods = append(pods, podWithPull(fmt.Sprint("hung", i), fmt.Sprint("r.io/hung:", i)))
		}
		n.set(pods...)
		time.Sleep(time.Second)
		present := podtest.Pod("present")
		present.Spec.Containers[0].Image, present.Spec.Containers[0].ImagePullPolicy = "present:1", corev1.PullIfNotPresent
		pods = append(pods, podWithPull("good", "r.io/good:1"), present)
		n.set(pods...)
		n.awaitRunning(500*time.Millisecond, "present")
		n.awaitRunning(2*time.Minute+time.Second, "good")
		time.Sleep(40 * time.Minute)
		n.requireStatus("hung9", "Pending, main: ImagePullBackOff")
		require.Contains(t, n.status("hung9").ContainerStatuses[0].State.Waiting.Message, "it made no progress for 30m0s")
	})
}
