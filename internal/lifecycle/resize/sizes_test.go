// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package resize_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
)

// sizedPod returns a pod with the init container setup and the container main.
func sizedPod(whole *corev1.ResourceRequirements, setup, main string) *corev1.Pod {
	pod := podtest.Pod("a")
	pod.Spec.Resources = whole
	pod.Spec.Containers[0].Resources = requirements(main)
	pod.Spec.InitContainers = []corev1.Container{podtest.Init("setup")}
	pod.Spec.InitContainers[0].Resources = requirements(setup)
	return pod
}

func TestParseSizesReadsString(t *testing.T) {
	for text, pod := range map[string]*corev1.Pod{
		";setup cpu=100/1000 memory=0/0;main cpu=250/500 memory=0/0":                         sizedPod(nil, "cpu=100m/1", "cpu=250m/500m"),
		"cpu=1000/2000 memory=0/0;setup cpu=100/1000 memory=0/0;main cpu=250/500 memory=0/0": sizedPod(new(requirements("cpu=1/2")), "cpu=100m/1", "cpu=250m/500m"),
	} {
		s := resize.SizesOf(pod)
		require.Equal(t, text, s.String())
		require.Equal(t, s, resize.ParseSizes(text))
		require.Equal(t, resize.SizeOfPod(pod), s.PodLevel())
	}
	var unknown *resize.Sizes
	require.Empty(t, unknown.String())
	require.Nil(t, resize.ParseSizes(""))
	_, ok := unknown.SizeOf("main")
	require.False(t, ok)
	require.Equal(t, ";main cpu=250/500 memory=0/0", resize.ParseSizes("any;main cpu=250/500 memory=0/0;setup").String(), "invalid entries are ignored")
}

func TestSizesEqual(t *testing.T) {
	one := resize.SizesOf(sizedPod(nil, "cpu=100m/1", "cpu=250m/500m"))
	for name, test := range map[string]struct {
		other                    *resize.Sizes
		equal, equalWithoutSetup bool
	}{
		"same sizes":                {resize.SizesOf(sizedPod(nil, "cpu=100m/1", "cpu=250m/500m")), true, true},
		"other init container size": {resize.SizesOf(sizedPod(nil, "cpu=200m/1", "cpu=250m/500m")), false, true},
		"another container":         {resize.SizesOf(sizedPod(nil, "cpu=100m/1", "cpu=300m/500m")), false, false},
		"pod-level resources":       {resize.SizesOf(sizedPod(new(requirements("cpu=1/2")), "cpu=100m/1", "cpu=250m/500m")), false, false},
		"empty pod-level resources": {resize.SizesOf(sizedPod(&corev1.ResourceRequirements{}, "cpu=100m/1", "cpu=250m/500m")), false, false},
		"no init container":         {&resize.Sizes{Containers: one.Containers[1:]}, false, true},
		"no container":              {&resize.Sizes{Containers: one.Containers[:1]}, false, false},
		"unknown":                   {nil, false, false},
	} {
		setup := func(container string) bool { return container == "setup" }
		assert.Equal(t, test.equal, one.Equal(test.other), name)
		assert.Equal(t, test.equal, test.other.Equal(one), name)
		assert.Equal(t, test.equalWithoutSetup, one.EqualExcept(test.other, setup), name)
		assert.Equal(t, test.equalWithoutSetup, test.other.EqualExcept(one, setup), name)
	}
	var unknown *resize.Sizes
	assert.True(t, unknown.Equal(nil))
}
