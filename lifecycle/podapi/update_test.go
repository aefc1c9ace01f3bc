// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

// podWithMutableFields returns a pod that sets every field that an update may change.
func podWithMutableFields(t testing.TB) *corev1.Pod {
	return podtest.Pod(t, `{activeDeadlineSeconds: 1000, schedulingGates: [{name: a}, {name: b}],
		tolerations: [{key: k, operator: Exists, effect: NoExecute}], resources: {requests: {cpu: 1}},
		initContainers: [{name: i, image: a}, {name: s, image: a, restartPolicy: Always}],
		ephemeralContainers: [{name: e, image: a, targetContainerName: c}, {name: f, image: a}]}`,
		`{resources: {requests: {cpu: 100m}, limits: {cpu: 1, ephemeral-storage: 1Gi}},
		resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]}`)
}

func TestValidateUpdateNamesTheField(t *testing.T) {
	for want, change := range map[string]func(pod *corev1.Pod, c *corev1.Container){
		"metadata.name":                      func(p *corev1.Pod, _ *corev1.Container) { p.Name = "b" },
		"metadata.namespace":                 func(p *corev1.Pod, _ *corev1.Container) { p.Namespace = "b" },
		"spec.restartPolicy":                 func(p *corev1.Pod, _ *corev1.Container) { p.Spec.RestartPolicy = "Never" },
		"spec.terminationGracePeriodSeconds": func(p *corev1.Pod, _ *corev1.Container) { p.Spec.TerminationGracePeriodSeconds = new(int64(1)) },
		"spec.activeDeadlineSeconds":         func(p *corev1.Pod, _ *corev1.Container) { p.Spec.ActiveDeadlineSeconds = new(int64(1001)) },
		"spec.tolerations":                   func(p *corev1.Pod, _ *corev1.Container) { p.Spec.Tolerations = nil },
		"spec.tolerations[0].key":            func(p *corev1.Pod, _ *corev1.Container) { p.Spec.Tolerations[0].Key = "l" },
		"spec.schedulingGates[0].name":       func(p *corev1.Pod, _ *corev1.Container) { p.Spec.SchedulingGates[0].Name = "c" },
		"spec.hostNetwork":                   func(p *corev1.Pod, _ *corev1.Container) { p.Spec.HostNetwork = true },
		"spec.containers":                    func(p *corev1.Pod, _ *corev1.Container) { p.Spec.Containers = nil },
		"spec.containers[0].name":            func(_ *corev1.Pod, c *corev1.Container) { c.Name = "b" },
		"spec.containers[0].env":             func(_ *corev1.Pod, c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "A"}} },
		"spec.containers[0].resources.limits": func(_ *corev1.Pod, c *corev1.Container) {
			c.Resources.Limits[corev1.ResourceEphemeralStorage] = quantity("2Gi")
		},
		"spec.containers[0].resizePolicy[0].restartPolicy": func(_ *corev1.Pod, c *corev1.Container) {
			c.ResizePolicy[0].RestartPolicy = corev1.RestartContainer
		},
		"spec.initContainers[0].command":       func(p *corev1.Pod, _ *corev1.Container) { p.Spec.InitContainers[0].Command = []string{"b"} },
		"spec.initContainers[1].restartPolicy": func(p *corev1.Pod, _ *corev1.Container) { p.Spec.InitContainers[1].RestartPolicy = nil },
		"spec.ephemeralContainers[1].command": func(p *corev1.Pod, _ *corev1.Container) {
			p.Spec.EphemeralContainers[1].Command = []string{"b"}
		},
		"spec.ephemeralContainers[f]": func(p *corev1.Pod, _ *corev1.Container) {
			p.Spec.EphemeralContainers = p.Spec.EphemeralContainers[:1]
		},
	} {
		old, pod := podWithMutableFields(t), podWithMutableFields(t)
		change(pod, &pod.Spec.Containers[0])
		oldBefore, podBefore := old.DeepCopy(), pod.DeepCopy()
		err := podapi.ValidateUpdate(old, pod)
		immutable, ok := errors.AsType[*podapi.ImmutableError](err)
		if !assert.True(t, ok, want) {
			continue
		}
		assert.Equal(t, cri.PodIdentity{UID: "u1", Name: "web", Namespace: "default"}, immutable.Pod)
		if assert.Len(t, immutable.Fields, 1, want) {
			assert.Equal(t, want, immutable.Fields[0].Field)
		}
		firstError, ok := errors.AsType[*field.Error](err)
		assert.True(t, ok && firstError == immutable.Fields[0], "the error contains the immutable fields")
		assert.ErrorContains(t, err, "pod default/web: UID u1: "+want+": Forbidden: may not ")
		assert.Equal(t, oldBefore, old, "ValidateUpdate does not modify the old pod")
		assert.Equal(t, podBefore, pod)
	}
}

func TestValidateUpdateAcceptsMutableFields(t *testing.T) {
	for name, change := range map[string]func(pod *corev1.Pod, c *corev1.Container){
		"nothing":       func(*corev1.Pod, *corev1.Container) {},
		"image":         func(_ *corev1.Pod, c *corev1.Container) { c.Image = "b" },
		"init image":    func(p *corev1.Pod, _ *corev1.Container) { p.Spec.InitContainers[1].Image = "b" },
		"pod resources": func(p *corev1.Pod, _ *corev1.Container) { p.Spec.Resources.Requests["cpu"] = quantity("2") },
		"resources": func(_ *corev1.Pod, c *corev1.Container) {
			c.Resources.Requests["cpu"], c.Resources.Limits["memory"] = quantity("2"), quantity("1Gi")
			delete(c.Resources.Limits, "cpu")
		},
		"a notation":      func(_ *corev1.Pod, c *corev1.Container) { c.Resources.Limits["ephemeral-storage"] = quantity("1024Mi") },
		"less time":       func(p *corev1.Pod, _ *corev1.Container) { p.Spec.ActiveDeadlineSeconds = new(int64(5)) },
		"toleration time": func(p *corev1.Pod, _ *corev1.Container) { p.Spec.Tolerations[0].TolerationSeconds = new(int64(5)) },
		"more tolerations": func(p *corev1.Pod, _ *corev1.Container) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "l"})
		},
		"fewer gates":   func(p *corev1.Pod, _ *corev1.Container) { p.Spec.SchedulingGates = p.Spec.SchedulingGates[1:] },
		"node":          func(p *corev1.Pod, _ *corev1.Container) { p.Spec.NodeName = "n" },
		"labels":        func(p *corev1.Pod, _ *corev1.Container) { p.Labels = map[string]string{"a": "b"} },
		"deletion":      func(p *corev1.Pod, _ *corev1.Container) { p.DeletionTimestamp = &metav1.Time{} },
		"status":        func(p *corev1.Pod, _ *corev1.Container) { p.Status.Phase = corev1.PodRunning },
		"an empty list": func(_ *corev1.Pod, c *corev1.Container) { c.Env = []corev1.EnvVar{} },
		"ephemeral containers": func(p *corev1.Pod, _ *corev1.Container) {
			e := corev1.EphemeralContainer{}
			e.Name = "first"
			p.Spec.EphemeralContainers = append([]corev1.EphemeralContainer{e}, p.Spec.EphemeralContainers...)
		},
	} {
		pod := podWithMutableFields(t)
		change(pod, &pod.Spec.Containers[0])
		assert.NoError(t, podapi.ValidateUpdate(podWithMutableFields(t), pod), name)
	}
	deleted := podWithMutableFields(t)
	deleted.DeletionTimestamp = &metav1.Time{}
	assert.ErrorContains(t, podapi.ValidateUpdate(deleted, podWithMutableFields(t)), "metadata.deletionTimestamp")
}

// The error for a completely different pod names ten fields.
func TestValidateUpdateLimitsErrors(t *testing.T) {
	old, pod := podWithMutableFields(t), podWithMutableFields(t)
	for i := range 100 {
		c := corev1.Container{Name: fmt.Sprint("c", i), Image: "a"}
		old.Spec.Containers = append(old.Spec.Containers, c)
		c.Command = []string{"b"}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	immutable, ok := errors.AsType[*podapi.ImmutableError](podapi.ValidateUpdate(old, pod))
	require.True(t, ok)
	assert.Len(t, immutable.Fields, 10)
}

func TestEqual(t *testing.T) {
	list := func(cpu string) *corev1.PodSpec {
		return &corev1.PodSpec{Overhead: corev1.ResourceList{corev1.ResourceCPU: quantity(cpu)}}
	}
	for name, test := range map[string]struct {
		a, b any
		want bool
	}{
		"quantity":       {list("1"), list("1000m"), true},
		"other quantity": {list("1"), list("2"), false},
		"no map":         {&corev1.PodSpec{}, &corev1.PodSpec{Overhead: corev1.ResourceList{}}, true},
		"no list":        {&corev1.PodSpec{}, &corev1.PodSpec{Tolerations: []corev1.Toleration{}}, true},
		"order":          {&corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}, {Name: "b"}}}, &corev1.PodSpec{Containers: []corev1.Container{{Name: "b"}, {Name: "a"}}}, false},
		"pointers":       {&corev1.PodSpec{Priority: new(int32(1))}, &corev1.PodSpec{Priority: new(int32(1))}, true},
		"no pointer":     {&corev1.PodSpec{Priority: new(int32)}, &corev1.PodSpec{}, false},
		"labels":         {&metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, &metav1.ObjectMeta{Labels: map[string]string{"a": "c"}}, false},
	} {
		assert.Equal(t, test.want, podapi.Equal(test.a, test.b), name)
		assert.Equal(t, test.want, podapi.Equal(test.b, test.a), name)
	}
	a, b := podWithMutableFields(t), podWithMutableFields(t)
	assert.True(t, podapi.Equal(a, b))
	assert.Zero(t, testing.AllocsPerRun(10, func() { podapi.Equal(a, b) }))
}
