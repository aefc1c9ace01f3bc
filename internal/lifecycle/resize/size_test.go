// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package resize_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
)

const mib = 1 << 20

// requirements parses "cpu=REQUEST/LIMIT memory=REQUEST/LIMIT"; each part is optional.
func requirements(words string) corev1.ResourceRequirements {
	return podtest.ParseRequirements(strings.Fields(words))
}

func TestSizeOf(t *testing.T) {
	tests := map[string]struct {
		pod, container string
		want           cgroups.ContainerSize
	}{
		"nothing":                 {},
		"all":                     {container: "cpu=250m/500m memory=32Mi/64Mi", want: cgroups.ContainerSize{CPURequest: 250, CPULimit: 500, MemoryRequest: 32 * mib, MemoryLimit: 64 * mib}},
		"requests":                {container: "cpu=250m/ memory=32Mi/", want: cgroups.ContainerSize{CPURequest: 250, MemoryRequest: 32 * mib}},
		"limits":                  {container: "cpu=/500m memory=/64Mi", want: cgroups.ContainerSize{CPURequest: 500, CPULimit: 500, MemoryLimit: 64 * mib}},
		"zero request with limit": {container: "cpu=0/500m", want: cgroups.ContainerSize{CPULimit: 500}},
		"fraction of a millicore": {container: "cpu=100u/1500u", want: cgroups.ContainerSize{CPURequest: 1, CPULimit: 2}},
		"overflow": {
			container: "cpu=9E/9E memory=9E/9E",
			want:      cgroups.ContainerSize{CPURequest: math.MaxInt64, CPULimit: math.MaxInt64, MemoryRequest: 9e18, MemoryLimit: 9e18},
		},
		"limits of the pod": {
			pod: "cpu=/2 memory=/128Mi", want: cgroups.ContainerSize{CPURequest: 2000, CPULimit: 2000, MemoryLimit: 128 * mib},
		},
		"limits of the pod, requests of the container": {
			pod: "cpu=/2 memory=/128Mi", container: "cpu=250m/ memory=32Mi/",
			want: cgroups.ContainerSize{CPURequest: 250, CPULimit: 2000, MemoryRequest: 32 * mib, MemoryLimit: 128 * mib},
		},
		"limits of the pod and the container": {
			pod: "cpu=/2 memory=/128Mi", container: "cpu=/500m memory=/64Mi",
			want: cgroups.ContainerSize{CPURequest: 500, CPULimit: 500, MemoryLimit: 64 * mib},
		},
		"requests of the pod": {pod: "cpu=1/ memory=64Mi/"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			spec := &corev1.PodSpec{}
			if tt.pod != "" {
				spec.Resources = new(requirements(tt.pod))
			}
			assert.Equal(t, tt.want, resize.SizeOf(spec, &corev1.Container{Resources: requirements(tt.container)}))
		})
	}
}

func TestSizeOfPod(t *testing.T) {
	pod := podtest.Pod("a")
	pod.Spec.Containers[0].Resources = requirements("cpu=1/2 memory=1Gi/2Gi")
	assert.Zero(t, resize.SizeOfPod(pod), "without pod-level resources the size is zero")
	pod.Spec.Resources = new(requirements("cpu=250m/500m memory=32Mi/64Mi"))
	assert.Equal(t, cgroups.ContainerSize{CPURequest: 250, CPULimit: 500, MemoryRequest: 32 * mib, MemoryLimit: 64 * mib}, resize.SizeOfPod(pod))
}

func TestWithSize(t *testing.T) {
	tests := map[string]struct {
		before string
		size   cgroups.ContainerSize
		want   string
	}{
		"nothing":         {before: "", want: "nothing"},
		"all removed":     {before: "cpu=1/2 memory=1Gi/2Gi", want: "nothing"},
		"all":             {size: cgroups.ContainerSize{CPURequest: 250, CPULimit: 500, MemoryRequest: 32 * mib, MemoryLimit: 64 * mib}, want: "cpu=250m/500m memory=32Mi/64Mi"},
		"only limits":     {size: cgroups.ContainerSize{CPULimit: 500, MemoryLimit: 64 * mib}, want: "cpu=0/500m memory=/64Mi"},
		"only requests":   {before: "cpu=/2 memory=/2Gi", size: cgroups.ContainerSize{CPURequest: 250, MemoryRequest: 32 * mib}, want: "cpu=250m/ memory=32Mi/"},
		"unknown request": {size: cgroups.ContainerSize{MemoryRequest: -1, MemoryLimit: 64 * mib}, want: "memory=/64Mi"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := corev1.Container{Name: "main", Resources: requirements(tt.before)}
			sized := resize.WithSize(&c, tt.size)
			assert.Equal(t, tt.want, podtest.FormatRequirements(&sized.Resources))
			assert.Equal(t, "main", sized.Name)
			assert.Equal(t, requirements(tt.before), c.Resources, "WithSize does not modify the container")
		})
	}
}

// A container with the resources of a size has that size, and its other resources are unchanged.
func TestWithSizeIsTheInverseOfSizeOf(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	amount := func() int64 {
		return podtest.Pick(rnd, []int64{0, 1, 999, rnd.Int64N(1 << 20), rnd.Int64N(1 << 40)})
	}
	for range 10_000 {
		size := cgroups.ContainerSize{CPURequest: amount(), CPULimit: amount(), MemoryRequest: amount(), MemoryLimit: amount()}
		c := corev1.Container{Resources: requirements(podtest.Pick(rnd, []string{"", "cpu=1/2", "memory=1Gi/2Gi cpu=/3"}))}
		sized := resize.WithSize(&c, size)
		require.Equal(t, size, resize.SizeOf(&corev1.PodSpec{}, &sized))
	}
}

func TestFormatSize(t *testing.T) {
	tests := map[string]struct {
		text string
		want cgroups.ContainerSize
		ok   bool
	}{
		"a size": {
			"cpu=250/500 memory=33554432/67108864",
			cgroups.ContainerSize{CPURequest: 250, CPULimit: 500, MemoryRequest: 32 * mib, MemoryLimit: 64 * mib},
			true,
		},
		"nothing": {"cpu=0/0 memory=0/0", cgroups.ContainerSize{}, true},
		"largest numbers": {
			"cpu=9223372036854775807/9223372036854775807 memory=9223372036854775807/9223372036854775807",
			cgroups.ContainerSize{CPURequest: math.MaxInt64, CPULimit: math.MaxInt64, MemoryRequest: math.MaxInt64, MemoryLimit: math.MaxInt64},
			true,
		},
		"empty":            {},
		"one part":         {text: "cpu=1/2"},
		"other part":       {text: "memory=1/2"},
		"other order":      {text: "memory=1/2 cpu=1/2"},
		"third part":       {text: "cpu=1/2 memory=1/2 disk=1/2"},
		"two blanks":       {text: "cpu=1/2  memory=1/2"},
		"no limit":         {text: "cpu=1 memory=1"},
		"negative request": {text: "cpu=-1/2 memory=1/2"},
		"negative limit":   {text: "cpu=1/2 memory=1/-2"},
		"too large":        {text: "cpu=9223372036854775808/2 memory=1/2"},
		"not a number":     {text: "cpu=x/2 memory=1/2"},
		"decimal number":   {text: "cpu=0.5/2 memory=1/2"},
		"number with unit": {text: "cpu=500m/1 memory=32Mi/64Mi"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			size, ok := resize.ParseSize(tt.text)
			require.Equal(t, tt.ok, ok)
			require.Equal(t, tt.want, size)
			if ok {
				require.Equal(t, tt.text, resize.FormatSize(size))
			}
		})
	}
}

// FuzzParseSize parses untrusted annotations. A parsed size can be formatted and parsed again.
func FuzzParseSize(f *testing.F) {
	for _, text := range []string{
		"cpu=250/500 memory=33554432/67108864", "cpu=0/0 memory=0/0", "cpu=-1/2 memory=3/4", "cpu=1/2", "cpu=+1/02 memory=0x1/1", "",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		size, ok := resize.ParseSize(text)
		if !ok {
			require.Zero(t, size)
			return
		}
		require.GreaterOrEqual(t, min(size.CPURequest, size.CPULimit, size.MemoryRequest, size.MemoryLimit), int64(0))
		again, ok := resize.ParseSize(resize.FormatSize(size))
		require.True(t, ok)
		require.Equal(t, size, again)
	})
}
