// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/seed81659283/nodeagent/internal/costtest"
	"github.com/seed81659283/nodeagent/internal/podfield"
	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

func execHook(size int) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{strings.Repeat("x", size)}}}
}

// The hooks of a container become its annotations. Four hooks of 4.5 MB made the runtime's list larger than a gRPC message,
// so that no agent could list containers.
func TestLargeHooksRejected(t *testing.T) {
	header := []corev1.HTTPHeader{{Name: "X", Value: strings.Repeat("x", podfield.MaxHook)}}
	get := &corev1.HTTPGetAction{Port: intstr.FromInt32(1), HTTPHeaders: header, Path: "/", Scheme: "HTTP"}
	json := len(`{"exec":{"command":[""]}}`)
	const path = "spec.containers[0].lifecycle."
	const tooLong = ": Too long: may not be more than 65536 bytes as JSON"
	for _, test := range []struct {
		lifecycle corev1.Lifecycle
		want      string
	}{
		{corev1.Lifecycle{PreStop: execHook(podfield.MaxHook - json)}, ""},
		{corev1.Lifecycle{PreStop: execHook(podfield.MaxHook - json + 1)}, path + "preStop" + tooLong},
		{corev1.Lifecycle{PreStop: execHook(4_500_000)}, path + "preStop" + tooLong},
		{corev1.Lifecycle{PostStart: execHook(4_500_000)}, path + "postStart" + tooLong},
		{corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: get}}, path + "preStop" + tooLong},
		{ // each of these letters takes six bytes as JSON
			corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{strings.Repeat("<", 20_000)}}}},
			path + "preStop" + tooLong,
		},
	} {
		p := podtest.Pod(t)
		p.Spec.Containers[0].Lifecycle = &test.lifecycle
		costtest.Check(t, costtest.Limit{Bytes: 4 << 20}, func() { assert.Equal(t, test.want, firstError(podapi.Validate(p))) })
	}
}

// The runtime's list of 110 pods is limited for all sizes of hooks, ports and containers.
func TestValidateListedLimitsSize(t *testing.T) {
	const most = "images, ports, preStop hooks and termination message paths of all containers may not be more than 131072 bytes, as the runtime lists them"
	p := podtest.Pod(t)
	for i := range 2 {
		c := named("h", i)
		c.Lifecycle = &corev1.Lifecycle{PreStop: execHook(podfield.MaxHook - 200)}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	podapi.Default(p)
	require.Empty(t, podapi.Validate(p))
	for name, change := range map[string]func(c *corev1.Container){
		"hooks": func(c *corev1.Container) { c.Lifecycle = p.Spec.Containers[1].Lifecycle },
		"ports": func(c *corev1.Container) {
			c.Ports = slices.Repeat([]corev1.ContainerPort{{ContainerPort: 1, Protocol: "TCP"}}, 500)
		},
		"path":  func(c *corev1.Container) { c.TerminationMessagePath = strings.Repeat("x", 5000) },
		"image": func(c *corev1.Container) { c.Image = strings.Repeat("x", 5000) },
	} {
		larger := p.DeepCopy()
		change(&larger.Spec.Containers[0])
		assert.Equal(t, "spec.containers[2]: Too long: "+most, firstError(podapi.Validate(larger)), name)
	}
}

// A pod with a thousand small containers is allowed.
func TestManyPlainContainersAccepted(t *testing.T) {
	p := podWith(999, func(p *corev1.Pod, i int) { p.Spec.Containers = append(p.Spec.Containers, named("c", i)) })
	assert.Empty(t, podapi.Validate(p))
}

// Labels and annotations of a pod are copied to its sandbox and are limited as in the API server.
func TestLargeLabelsRejected(t *testing.T) {
	p := podtest.Pod(t)
	p.Annotations = map[string]string{"a": strings.Repeat("x", 256<<10-1)}
	assert.Empty(t, podapi.Validate(p))
	p.Annotations["a"] += "x"
	assert.Equal(t, "metadata.annotations: Too long: may not be more than 262144 bytes", firstError(podapi.Validate(p)))

	p.Annotations, p.Labels = nil, map[string]string{}
	for i := range 1000 {
		p.Labels[fmt.Sprintf("example.com/%063d", i)] = ""
	}
	assert.Equal(t, "metadata.labels: Too long: may not be more than 65536 bytes in all", firstError(podapi.Validate(p)))
}
