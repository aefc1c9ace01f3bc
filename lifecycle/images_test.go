// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/pleg"
)

// imagesInUse returns the images in use by a Reconciler, sorted and without duplicates.
func imagesInUse(r *lifecycle.Reconciler) []string {
	names := r.ImagesInUse()
	slices.Sort(names)
	return slices.Compact(names)
}

// podWithImage returns a pod of one container with an image.
func podWithImage(name, image string) *corev1.Pod {
	pod := podtest.Pod(name)
	pod.Spec.Containers[0].Image = image
	return pod
}

// Each of these images is pulled before its container is created: garbage collection must not remove it in between.
func TestImagesInUseBeforeRunHasContainersAndVolumes(t *testing.T) {
	rt := critest.New(critest.Options{})
	r := newReconciler(t, rt, pleg.New(rt, pleg.Options{}), lifecycle.Options{Images: struct{ lifecycle.Images }{}})
	require.Empty(t, r.ImagesInUse())
	pod := podWithImage("a", "main")
	pod.Spec.InitContainers = []corev1.Container{podtest.Init("setup"), podtest.Sidecar("proxy")}
	pod.Spec.InitContainers[0].Image, pod.Spec.InitContainers[1].Image = "init", "sidecar"
	podtest.AddEphemeral(pod, "main")
	pod.Spec.EphemeralContainers[0].Image = "debug"
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "model", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "volume"}}},
	}
	podapi.Default(pod)
	require.NoError(t, r.Set(lifecycle.PodSet{Source: "test", Pods: []*corev1.Pod{pod}}))
	require.Equal(t, []string{"debug", "init", "main", "sidecar", "volume"}, imagesInUse(r))
}

func TestImagesInUseUntilPodTerminatesOrIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: func(c *cri.ContainerConfig) critest.Script {
			if c.Name == "job" {
				return critest.ExitAfter(time.Minute, 0)
			}
			return critest.IgnoreTERM()
		}})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		job := podtest.Pod("job", "job")
		job.Spec.Containers[0].Image, job.Spec.RestartPolicy = "job:1", corev1.RestartPolicyNever
		web := podWithImage("web", "web:1")
		n.set(job, web)
		time.Sleep(30 * time.Second)
		require.Equal(t, []string{"job:1", "web:1"}, imagesInUse(n.reconciler))
		time.Sleep(time.Minute)
		require.Equal(t, corev1.PodSucceeded, n.phase("job"))
		require.Equal(t, []string{"web:1"}, imagesInUse(n.reconciler))
		n.set(job)
		synctest.Wait()
		require.Empty(t, imagesInUse(n.reconciler), "image of a removed pod is not in use: garbage collection keeps images of existing containers")
	})
}
