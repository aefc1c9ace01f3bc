// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package containers_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/containers"
)

// newPod returns a pod with containers of each kind. A regular container may have the restart policy that makes an init
// container a sidecar.
func newPod() *corev1.PodSpec {
	always := corev1.ContainerRestartPolicyAlways
	debug := corev1.EphemeralContainerCommon{Name: "debug", Image: "shell", RestartPolicy: &always}
	return &corev1.PodSpec{
		InitContainers:      []corev1.Container{{Name: "setup"}, {Name: "proxy", RestartPolicy: &always}},
		Containers:          []corev1.Container{{Name: "main", RestartPolicy: &always}, {Name: "helper"}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: debug}},
	}
}

// All and Find agree on the kind and the index of each container.
func TestAllAndFindAgree(t *testing.T) {
	pod := newPod()
	var got []string
	for c := range containers.All(pod) {
		got = append(got, fmt.Sprint(c.Name, " ", c.Kind, " ", c.Index))
		assert.Equal(t, c, containers.Find(pod, c.Name))
		assert.Same(t, c.Container, containers.Named(pod, c.Name))
		assert.Equal(t, c.Name == "proxy", c.IsSidecar(), c.Name)
		assert.Equal(t, c.Kind == containers.Init, containers.IsInit(pod, c.Container), c.Name)
	}
	assert.Equal(t, []string{"setup 0 0", "proxy 0 1", "main 1 0", "helper 1 1", "debug 2 0"}, got)
	assert.Same(t, &pod.InitContainers[1], containers.Named(pod, "proxy"))
	assert.Same(t, &pod.Containers[0], containers.Named(pod, "main"))
	assert.Equal(t, "shell", containers.Named(pod, "debug").Image)
}

func TestNotEphemeral(t *testing.T) {
	var names []string
	for c := range containers.NotEphemeral(newPod()) {
		names = append(names, c.Name)
	}
	assert.Equal(t, []string{"setup", "proxy", "main", "helper"}, names)
}

func TestAllStopsWhenTheLoopBreaks(t *testing.T) {
	pod := newPod()
	for _, end := range []string{"setup", "main", "debug"} {
		last := ""
		for c := range containers.All(pod) {
			last = c.Name
			if last == end {
				break
			}
		}
		assert.Equal(t, end, last)
	}
	for c := range containers.NotEphemeral(pod) {
		assert.Equal(t, "setup", c.Name)
		break
	}
}

func TestFindReturnsZeroForUnknownName(t *testing.T) {
	pod := newPod()
	assert.Zero(t, containers.Find(pod, "other"))
	assert.Nil(t, containers.Named(pod, "other"))
	assert.False(t, containers.IsInit(pod, &corev1.Container{Name: "other"}))
	assert.True(t, containers.IsInit(pod, &corev1.Container{Name: "setup"}), "the container is found by its name")
}

func TestAllDoesNotAllocate(t *testing.T) {
	pod := newPod()
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		for c := range containers.NotEphemeral(pod) {
			_ = containers.Named(pod, c.Name)
		}
	}))
}
