// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/podfield"
	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// The configs of 110 pods that podapi.Validate accepts fit in the lists of the runtime, with hooks.
func TestConfigsOf110ValidPodsFitRuntimeLists(t *testing.T) {
	p := podtest.Pod(t)
	hook := &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{strings.Repeat("x", podfield.MaxHook-200)}}}
	for i := range 2 {
		c := corev1.Container{Name: fmt.Sprint("h", i), Image: "a", Lifecycle: &corev1.Lifecycle{PreStop: hook}}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	podapi.Default(p)
	require.Empty(t, podapi.Validate(p))
	listed := 0
	for i := range p.Spec.Containers {
		c, err := podspec.Container(p, &p.Spec.Containers[i], podspec.Launch{}, podspec.Options{})
		require.NoError(t, err)
		for k, v := range c.Annotations {
			listed += len(k) + len(v)
		}
	}
	assert.Less(t, 110*listed, 16<<20)
}

// podapi.Validate counts the annotations that the config of a container has: ports and the preStop hook as JSON.
func TestValidateCountsAnnotationsOfConfig(t *testing.T) {
	p := podtest.Pod(t, "", "{ports: [{containerPort: 80, name: web}], lifecycle: {preStop: {exec: {command: ['<a>']}}}}")
	c := &p.Spec.Containers[0]
	config := container(t, p, podspec.Launch{}, podspec.Options{})
	size := len(c.Image) + len(c.TerminationMessagePath) +
		len(config.Annotations[podspec.AnnotationPorts]) + len(config.Annotations[podspec.AnnotationPreStopHandler])
	c.TerminationMessagePath += strings.Repeat("x", podfield.MaxListed-size)
	assert.Empty(t, podapi.Validate(p))
	c.TerminationMessagePath += "x"
	assert.Len(t, podapi.Validate(p), 1)
}

// Annotations of devices, or of a pod that was not validated, above the limit are refused before they reach the runtime.
func TestConfigsRefuseTooLargeAnnotations(t *testing.T) {
	p, huge := podtest.Pod(t), strings.Repeat("x", 1<<20)
	_, err := podspec.Container(p, &p.Spec.Containers[0], podspec.Launch{Annotations: map[string]string{"a": huge}}, podspec.Options{})
	assert.EqualError(t, err, "spec.containers[0]: Too long: labels and annotations may not be more than 131072 bytes in all")
	p.Annotations = map[string]string{"a": huge}
	_, err = podspec.Sandbox(p, 0, podspec.Options{})
	assert.EqualError(t, err, "metadata: Too long: labels and annotations may not be more than 327680 bytes in all")
}
