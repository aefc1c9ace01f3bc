// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package resize_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/qos"
)

// parseSize returns the size for these words.
func parseSize(words string) cgroups.ContainerSize {
	return resize.SizeOf(&corev1.PodSpec{}, &corev1.Container{Resources: requirements(words)})
}

// resources returns the resources that a runtime reports for a container of pod with these requests and limits.
func resources(t *testing.T, pod *corev1.Pod, o podspec.Options, words string) *cri.Resources {
	t.Helper()
	r, err := podspec.Resources(pod, &corev1.Container{Name: "main", Resources: requirements(words)}, o)
	require.NoError(t, err)
	return r
}

// newInstance returns a container instance that was created with these resources and still has them.
func newInstance(t *testing.T, name, words string, state cri.ContainerState) cri.Container {
	t.Helper()
	return cri.Container{
		ID: name + "-0", Name: name, State: state, Resources: resources(t, podtest.Pod("a"), podspec.Options{}, words),
		Annotations: map[string]string{resize.AnnotationResources: resize.FormatSize(parseSize(words))},
	}
}

// swapOptions returns options of a node on which containers of Burstable pods can swap.
func swapOptions() podspec.Options {
	return podspec.Options{Node: &qos.Node{MemoryCapacity: 1 << 30, Swap: qos.LimitedSwap, SwapCapacity: 1 << 30}}
}

const (
	running = cri.ContainerRunning
	exited  = cri.ContainerExited
)

// In each case the container main was created with cpu=250m/500m memory=32Mi/64Mi and runs, unless the case sets another
// state.
func TestDecide(t *testing.T) {
	tests := map[string]struct {
		spec   string // requested resources of main
		state  cri.ContainerState
		change func(t *testing.T, s *resize.State)

		want    []string // expected resizes of containers
		changed bool
		resizes bool
		reason  string // expected reason of a pending resize
		message string
	}{
		"no change": {spec: "cpu=250m/500m memory=32Mi/64Mi"},
		"CPU and memory": {
			spec: "cpu=500m/1 memory=64Mi/128Mi", changed: true, resizes: true,
			want: []string{"main: cpu=250m/500m memory=32Mi/64Mi -> cpu=500m/1000m memory=64Mi/128Mi"},
		},
		"memory request, not reported by the runtime": {
			spec: "cpu=250m/500m memory=48Mi/64Mi", changed: true, resizes: true,
			want: []string{"main: cpu=250m/500m memory=32Mi/64Mi -> cpu=250m/500m memory=48Mi/64Mi"},
		},
		"memory request, already sent": {
			spec: "cpu=250m/500m memory=48Mi/64Mi", changed: true,
			change: func(_ *testing.T, s *resize.State) {
				s.SentSizes = map[string]cgroups.ContainerSize{"main-0": parseSize("cpu=250m/500m memory=48Mi/64Mi")}
			},
		},
		"restart required": {
			spec: "cpu=250m/500m memory=32Mi/128Mi", changed: true, resizes: true,
			change: func(_ *testing.T, s *resize.State) { restartOnResize(s, corev1.ResourceMemory) },
			want:   []string{"main: cpu=250m/500m memory=32Mi/64Mi -> cpu=250m/500m memory=32Mi/128Mi, by a restart"},
		},
		"other resource, no restart": {
			spec: "cpu=500m/1 memory=32Mi/64Mi", changed: true, resizes: true,
			change: func(_ *testing.T, s *resize.State) { restartOnResize(s, corev1.ResourceMemory) },
			want:   []string{"main: cpu=250m/500m memory=32Mi/64Mi -> cpu=500m/1000m memory=32Mi/64Mi"},
		},
		"exited container": {
			spec: "cpu=500m/1 memory=32Mi/64Mi", state: exited, changed: true, resizes: true, // a restart uses the requested resources
		},
		"created container": {
			spec: "cpu=500m/1 memory=32Mi/64Mi", changed: true, resizes: true,
			change: func(_ *testing.T, s *resize.State) { s.Observed.Containers[0].State = cri.ContainerCreated },
			want:   []string{"main: cpu=250m/500m memory=32Mi/64Mi -> cpu=500m/1000m memory=32Mi/64Mi"},
		},
		"container not created": {
			spec: "cpu=500m/1", change: func(_ *testing.T, s *resize.State) { s.Observed.Containers = nil },
		},
		"running sidecar": {
			spec: "cpu=250m/500m memory=32Mi/64Mi", changed: true, resizes: true,
			change: func(t *testing.T, s *resize.State) { addInit(t, s, podtest.Sidecar("proxy"), running) },
			want:   []string{"proxy: cpu=100m/200m memory=0/0 -> cpu=200m/200m memory=0/0"},
		},
		"running init container": {
			spec: "cpu=250m/500m memory=32Mi/64Mi", changed: true, resizes: true,
			change: func(t *testing.T, s *resize.State) { addInit(t, s, podtest.Init("setup"), running) },
			want:   []string{"setup: cpu=100m/200m memory=0/0 -> cpu=200m/200m memory=0/0"},
		},
		"completed init container": {
			spec:   "cpu=250m/500m memory=32Mi/64Mi",
			change: func(t *testing.T, s *resize.State) { addInit(t, s, podtest.Init("setup"), exited) },
		},
		"QoS class changed": {
			spec:   "cpu=500m/500m memory=64Mi/64Mi",
			reason: "Infeasible", message: "Pod QOS Class may not change as a result of resizing",
		},
		"runtime cannot update": {
			spec: "cpu=500m/1 memory=64Mi/128Mi", change: func(_ *testing.T, s *resize.State) { s.NoUpdates = true },
			reason: "Infeasible", message: "In-place pod resize is not supported on this node",
		},
		"memory request with swap": {
			spec: "cpu=250m/500m memory=48Mi/128Mi", change: func(_ *testing.T, s *resize.State) { s.Spec = swapOptions() },
			reason: "Infeasible", message: "In-place resize of containers with swap is not supported.",
		},
		"CPU with swap": {
			spec: "cpu=500m/1 memory=32Mi/64Mi", changed: true, resizes: true,
			change: func(_ *testing.T, s *resize.State) { s.Spec = swapOptions() },
			want:   []string{"main: cpu=250m/500m memory=32Mi/64Mi -> cpu=500m/1000m memory=32Mi/64Mi"},
		},
		"memory request with swap, restart required": {
			spec: "cpu=250m/500m memory=48Mi/128Mi", changed: true, resizes: true,
			change: func(_ *testing.T, s *resize.State) {
				s.Spec = swapOptions()
				restartOnResize(s, corev1.ResourceMemory)
			},
			want: []string{"main: cpu=250m/500m memory=32Mi/64Mi -> cpu=250m/500m memory=48Mi/128Mi, by a restart"},
		},
		"pod level": {
			spec: "cpu=250m/500m memory=32Mi/64Mi", resizes: true,
			change: func(_ *testing.T, s *resize.State) {
				s.Pod.Spec.Resources, s.CgroupSizes = new(requirements("cpu=1/2")), &resize.Sizes{Pod: new(parseSize("cpu=500m/1"))}
			},
		},
		"pod level, cgroup up to date": {
			spec: "cpu=250m/500m memory=32Mi/64Mi",
			change: func(_ *testing.T, s *resize.State) {
				s.Pod.Spec.Resources, s.CgroupSizes = new(requirements("cpu=1/2")), &resize.Sizes{Pod: new(parseSize("cpu=1/2"))}
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := podtest.Pod("a")
			pod.Spec.Containers[0].Resources = requirements(tt.spec)
			if tt.state == cri.ContainerCreated {
				tt.state = running
			}
			s := resize.State{Pod: pod, Observed: cri.Pod{Containers: []cri.Container{
				newInstance(t, "main", "cpu=250m/500m memory=32Mi/64Mi", tt.state),
			}}}
			if tt.change != nil {
				tt.change(t, &s)
			}
			d := resize.Decide(s)
			assert.Equal(t, resize.SizesOf(d.Pod), d.Sizes)
			var got []string
			for _, c := range d.Containers {
				assert.Equal(t, c.Name+"-0", c.ID)
				got = append(got, describe(c))
			}
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.changed, d.ResizedSinceCreate)
			assert.Equal(t, tt.resizes, d.IsResize())
			assert.Equal(t, tt.reason+": "+tt.message, d.Reason+": "+d.Message)
			if tt.reason != "" {
				assert.Equal(t, "cpu=250m/500m memory=32Mi/64Mi", podtest.FormatRequirements(&d.Pod.Spec.Containers[0].Resources),
					"the pod keeps its previous resources")
				return
			}
			assert.Same(t, pod, d.Pod)
			assert.Equal(t, tt.spec, podtest.FormatRequirements(&pod.Spec.Containers[0].Resources), "Decide does not modify the pod")
		})
	}
}

// describe describes the resize of a container.
func describe(c resize.Container) string {
	line := fmt.Sprintf("%s: %s -> %s", c.Name, podtest.FormatSize(c.From), podtest.FormatSize(c.To))
	if c.Restart {
		line += ", by a restart"
	}
	return line
}

// restartOnResize makes a resize of this resource restart container main.
func restartOnResize(s *resize.State, name corev1.ResourceName) {
	s.Pod.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: name, RestartPolicy: corev1.RestartContainer}}
}

// addInit adds an init container that was created with 100 millicores and requests 200 millicores.
func addInit(t *testing.T, s *resize.State, c corev1.Container, state cri.ContainerState) {
	c.Resources = requirements("cpu=200m/200m")
	s.Pod.Spec.InitContainers = append(s.Pod.Spec.InitContainers, c)
	s.Observed.Containers = append(s.Observed.Containers, newInstance(t, c.Name, "cpu=100m/200m", state))
}

// A deferred resize keeps the previous resources and has a message.
func TestDeferredKeepsPreviousResources(t *testing.T) {
	pod := podtest.Pod("a")
	pod.Spec.Containers[0].Resources = requirements("cpu=500m/1")
	d := resize.Decide(resize.State{Pod: pod, Observed: cri.Pod{Containers: []cri.Container{newInstance(t, "main", "cpu=250m/500m", running)}}})
	require.True(t, d.IsResize())
	require.Equal(t, "cpu=250m/500m", podtest.FormatRequirements(&d.Previous.Spec.Containers[0].Resources))

	deferred := d.Deferred("the node is full")
	require.False(t, deferred.IsResize(), "a deferred resize is no resize")
	require.Empty(t, deferred.Containers)
	require.Equal(t, "Deferred: the node is full", deferred.Reason+": "+deferred.Message)
	require.Equal(t, "cpu=250m/500m", podtest.FormatRequirements(&deferred.Pod.Spec.Containers[0].Resources))

	infeasible := d.Infeasible("the node is small")
	require.Equal(t, "Infeasible: the node is small", infeasible.Reason+": "+infeasible.Message)
	require.Equal(t, deferred.Pod, infeasible.Pod)
}

// An infeasible pod-level resize keeps the previous sizes of the pod cgroup.
func TestInfeasiblePodLevelResizeKeepsCgroupSizes(t *testing.T) {
	pod := podtest.Pod("a")
	pod.Spec.Containers[0].Resources = requirements("cpu=100m/500m")
	pod.Spec.Resources = new(requirements("cpu=1/2"))
	d := resize.Decide(resize.State{
		Pod: pod, NoUpdates: true, CgroupSizes: &resize.Sizes{Pod: new(parseSize("cpu=500m/1"))},
		Observed: cri.Pod{Containers: []cri.Container{newInstance(t, "main", "cpu=100m/500m", running)}},
	})
	require.Equal(t, corev1.PodReasonInfeasible, d.Reason)
	require.Equal(t, "cpu=500m/1", podtest.FormatRequirements(d.Pod.Spec.Resources))
	require.Equal(t, "cpu=1/2", podtest.FormatRequirements(pod.Spec.Resources))
}

// A resize of a completed init container does not change the pod cgroup. The actual resources have its previous size.
func TestResizeOfCompletedInitContainerChangesNothing(t *testing.T) {
	tests := map[string]struct {
		state    cri.ContainerState
		exitCode int32
		want     string // actual CPU request
	}{
		"completed": {exited, 0, "300m"},
		"failed":    {exited, 1, "allocated"}, // the container restarts, so the pod cgroup is resized
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := podtest.Pod("a")
			pod.Spec.Containers[0].Resources = requirements("cpu=100m/1")
			setup := podtest.Init("setup")
			setup.Resources = requirements("cpu=200m/1")
			pod.Spec.InitContainers = []corev1.Container{setup}
			was := newInstance(t, "setup", "cpu=300m/1", test.state)
			was.ExitCode = test.exitCode
			sizes := &resize.Sizes{Containers: []resize.ContainerSize{{Name: "setup", Size: parseSize("cpu=300m/1")}}}
			s := resize.State{
				Pod: pod, Allocated: resize.AllocationOf(pod), CgroupSizes: sizes,
				Observed: cri.Pod{Containers: []cri.Container{was, newInstance(t, "main", "cpu=100m/1", running)}},
			}
			d := resize.Decide(s)
			require.False(t, d.InProgress)
			require.Empty(t, d.Containers)
			require.False(t, d.IsResize())
			have := "allocated"
			if d.Actual != nil {
				have = d.Actual.Spec.InitContainers[0].Resources.Requests.Cpu().String()
			}
			require.Equal(t, test.want, have)

			s.NoCgroup = true
			require.Nil(t, resize.Decide(s).Actual, "without a pod cgroup of the agent, the actual resources are the allocated ones")
			s.NoCgroup, s.NoUpdates = false, true
			require.Nil(t, resize.Decide(s).Actual, "without updates, the actual resources are the allocated ones")
		})
	}
	pod := podtest.Pod("a")
	require.Same(t, pod, resize.WithInitSizes(pod, &resize.Sizes{Containers: []resize.ContainerSize{{Name: "main", Size: parseSize("cpu=300m/1")}}}))
}
