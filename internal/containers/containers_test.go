// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package containers_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/containers"
)

func TestContainersOfAPod(t *testing.T) {
	pod := corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "setup"}, {Name: "proxy", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}},
		Containers:     []corev1.Container{{Name: "main"}, {Name: "helper"}},
		EphemeralContainers: []corev1.EphemeralContainer{
			{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "shell"}},
		},
	}
	var names []string
	for c := range containers.All(&pod) {
		names = append(names, c.Name)
	}
	assert.Equal(t, []string{"setup", "proxy", "main", "helper"}, names)
	for c := range containers.All(&pod) {
		assert.Equal(t, "setup", c.Name, "it ends when the loop does")
		break
	}

	assert.Same(t, &pod.InitContainers[1], containers.Named(&pod, "proxy"))
	assert.Same(t, &pod.Containers[0], containers.Named(&pod, "main"))
	assert.Equal(t, "shell", containers.Named(&pod, "debug").Image)
	assert.Nil(t, containers.Named(&pod, "other"))

	assert.True(t, containers.IsInit(&pod, &corev1.Container{Name: "setup"}))
	assert.False(t, containers.IsInit(&pod, &pod.Containers[0]))
	assert.False(t, containers.IsSidecar(&pod.InitContainers[0]))
	assert.True(t, containers.IsSidecar(&pod.InitContainers[1]))
}
