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

// sized returns the size of resources.
func sized(words string) cgroups.ContainerSize {
	return resize.SizeOf(&corev1.PodSpec{}, &corev1.Container{Resources: requirements(words)})
}

// resources returns what a runtime has of a container of a pod with these resources.
func resources(t *testing.T, pod *corev1.Pod, o podspec.Options, words string) *cri.Resources {
	t.Helper()
	r, err := podspec.Resources(pod, &corev1.Container{Name: "main", Resources: requirements(words)}, o)
	require.NoError(t, err)
	return r
}

// made returns an instance of a container that was made with resources, and has them by what the runtime says.
func made(t *testing.T, name, words string, state cri.ContainerState) cri.Container {
	t.Helper()
	return cri.Container{
		ID: name + "-0", Name: name, State: state, Resources: resources(t, podtest.Pod("a"), podspec.Options{}, words),
		Annotations: map[string]string{resize.AnnotationResources: resize.FormatSize(sized(words))},
	}
}

// swapping is a node on which containers of Burstable pods may swap.
func swapping() podspec.Options {
	return podspec.Options{Node: &qos.Node{MemoryCapacity: 1 << 30, Swap: qos.LimitedSwap, SwapCapacity: 1 << 30}}
}

const (
	running = cri.ContainerRunning
	exited  = cri.ContainerExited
)

// Each case is a pod with the container main, which was made with cpu=250m/500m memory=32Mi/64Mi and runs, unless it says
// otherwise.
func TestDecide(t *testing.T) {
	tests := map[string]struct {
		spec   string // the resources that main is to have
		state  cri.ContainerState
		change func(t *testing.T, s *resize.State)

		want    []string // what is to be done, for each container that has an instance to do it with
		changed bool
		resizes bool
		reason  string // why it cannot be
		message string
	}{
		"nothing new": {spec: "cpu=250m/500m memory=32Mi/64Mi"},
		"all": {
			spec: "cpu=500m/1 memory=64Mi/128Mi", changed: true, resizes: true,
			want: []string{"main: cpu=250m/500m memory=32Mi/64Mi -> cpu=500m/1000m memory=64Mi/128Mi"},
		},
		"a request of memory, which no runtime tells": {
			spec: "cpu=250m/500m memory=48Mi/64Mi", changed: true, resizes: true,
			want: []string{"main: cpu=250m/500m memory=32Mi/64Mi -> cpu=250m/500m memory=48Mi/64Mi"},
		},
		"a request of memory, of which the runtime was told": {
			spec: "cpu=250m/500m memory=48Mi/64Mi", changed: true,
			change: func(_ *testing.T, s *resize.State) {
				s.Told = map[string]cgroups.ContainerSize{"main-0": sized("cpu=250m/500m memory=48Mi/64Mi")}
			},
		},
		"by a restart": {
			spec: "cpu=250m/500m memory=32Mi/128Mi", changed: true, resizes: true,
			change: func(_ *testing.T, s *resize.State) { restartsFor(s, corev1.ResourceMemory) },
			want:   []string{"main: cpu=250m/500m memory=32Mi/64Mi -> cpu=250m/500m memory=32Mi/128Mi, by a restart"},
		},
		"of the other resource, without a restart": {
			spec: "cpu=500m/1 memory=32Mi/64Mi", changed: true, resizes: true,
			change: func(_ *testing.T, s *resize.State) { restartsFor(s, corev1.ResourceMemory) },
			want:   []string{"main: cpu=250m/500m memory=32Mi/64Mi -> cpu=500m/1000m memory=32Mi/64Mi"},
		},
		"one that has exited": {
			spec: "cpu=500m/1 memory=32Mi/64Mi", state: exited, changed: true, resizes: true, // it starts with what it is to have
		},
		"one that was created": {
			spec: "cpu=500m/1 memory=32Mi/64Mi", changed: true, resizes: true,
			change: func(_ *testing.T, s *resize.State) { s.Observed.Containers[0].State = cri.ContainerCreated },
			want:   []string{"main: cpu=250m/500m memory=32Mi/64Mi -> cpu=500m/1000m memory=32Mi/64Mi"},
		},
		"one that is yet to be made": {
			spec: "cpu=500m/1", change: func(_ *testing.T, s *resize.State) { s.Observed.Containers = nil },
		},
		"a sidecar that runs": {
			spec: "cpu=250m/500m memory=32Mi/64Mi", changed: true, resizes: true,
			change: func(t *testing.T, s *resize.State) { addInit(t, s, podtest.Sidecar("proxy"), running) },
			want:   []string{"proxy: cpu=100m/200m memory=0/0 -> cpu=200m/200m memory=0/0"},
		},
		"an init container that runs": {
			spec: "cpu=250m/500m memory=32Mi/64Mi", changed: true, resizes: true,
			change: func(t *testing.T, s *resize.State) { addInit(t, s, podtest.Init("setup"), running) },
			want:   []string{"setup: cpu=100m/200m memory=0/0 -> cpu=200m/200m memory=0/0"},
		},
		"an init container that has had its turn": {
			spec:   "cpu=250m/500m memory=32Mi/64Mi",
			change: func(t *testing.T, s *resize.State) { addInit(t, s, podtest.Init("setup"), exited) },
		},
		"of another QoS class": {
			spec:   "cpu=500m/500m memory=64Mi/64Mi",
			reason: "Infeasible", message: "Pod QOS Class may not change as a result of resizing",
		},
		"in a runtime that cannot": {
			spec: "cpu=500m/1 memory=64Mi/128Mi", change: func(_ *testing.T, s *resize.State) { s.Fixed = true },
			reason: "Infeasible", message: "In-place pod resize is not supported on this node",
		},
		"of one that swaps": {
			spec: "cpu=250m/500m memory=48Mi/128Mi", change: func(_ *testing.T, s *resize.State) { s.Spec = swapping() },
			reason: "Infeasible", message: "In-place resize of containers with swap is not supported.",
		},
		"of the CPU of one that swaps": {
			spec: "cpu=500m/1 memory=32Mi/64Mi", changed: true, resizes: true,
			change: func(_ *testing.T, s *resize.State) { s.Spec = swapping() },
			want:   []string{"main: cpu=250m/500m memory=32Mi/64Mi -> cpu=500m/1000m memory=32Mi/64Mi"},
		},
		"of one that swaps, by a restart": {
			spec: "cpu=250m/500m memory=48Mi/128Mi", changed: true, resizes: true,
			change: func(_ *testing.T, s *resize.State) {
				s.Spec = swapping()
				restartsFor(s, corev1.ResourceMemory)
			},
			want: []string{"main: cpu=250m/500m memory=32Mi/64Mi -> cpu=250m/500m memory=48Mi/128Mi, by a restart"},
		},
		"the pod as a whole": {
			spec: "cpu=250m/500m memory=32Mi/64Mi", resizes: true,
			change: func(_ *testing.T, s *resize.State) {
				s.Pod.Spec.Resources, s.Sized = new(requirements("cpu=1/2")), &resize.Sizes{Pod: new(sized("cpu=500m/1"))}
			},
		},
		"the pod as a whole has what it is to have": {
			spec: "cpu=250m/500m memory=32Mi/64Mi",
			change: func(_ *testing.T, s *resize.State) {
				s.Pod.Spec.Resources, s.Sized = new(requirements("cpu=1/2")), &resize.Sizes{Pod: new(sized("cpu=1/2"))}
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
				made(t, "main", "cpu=250m/500m memory=32Mi/64Mi", tt.state),
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
			assert.Equal(t, tt.changed, d.Changed)
			assert.Equal(t, tt.resizes, d.Resizes())
			assert.Equal(t, tt.reason+": "+tt.message, d.Reason+": "+d.Message)
			if tt.reason != "" {
				assert.Equal(t, "cpu=250m/500m memory=32Mi/64Mi", podtest.Amounts(&d.Pod.Spec.Containers[0].Resources),
					"the pod goes on as it is")
				return
			}
			assert.Same(t, pod, d.Pod)
			assert.Equal(t, tt.spec, podtest.Amounts(&pod.Spec.Containers[0].Resources), "the pod is not written to")
		})
	}
}

// describe writes what is to be done to a container.
func describe(c resize.Container) string {
	line := fmt.Sprintf("%s: %s -> %s", c.Name, podtest.SizeText(c.From), podtest.SizeText(c.To))
	if c.Restart {
		line += ", by a restart"
	}
	return line
}

// restartsFor has main be started anew for another amount of a resource.
func restartsFor(s *resize.State, name corev1.ResourceName) {
	s.Pod.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: name, RestartPolicy: corev1.RestartContainer}}
}

// addInit adds an init container that was made with 100 millicores and is to have 200.
func addInit(t *testing.T, s *resize.State, c corev1.Container, state cri.ContainerState) {
	c.Resources = requirements("cpu=200m/200m")
	s.Pod.Spec.InitContainers = append(s.Pod.Spec.InitContainers, c)
	s.Observed.Containers = append(s.Observed.Containers, made(t, c.Name, "cpu=100m/200m", state))
}

// A node without room leaves the pod with what it has, and says why.
func TestDeferred(t *testing.T) {
	pod := podtest.Pod("a")
	pod.Spec.Containers[0].Resources = requirements("cpu=500m/1")
	d := resize.Decide(resize.State{Pod: pod, Observed: cri.Pod{Containers: []cri.Container{made(t, "main", "cpu=250m/500m", running)}}})
	require.True(t, d.Resizes())
	require.Equal(t, "cpu=250m/500m", podtest.Amounts(&d.Before.Spec.Containers[0].Resources))

	deferred := d.Deferred("the node is full")
	require.False(t, deferred.Resizes(), "there is nothing to ask any more")
	require.Empty(t, deferred.Containers)
	require.Equal(t, "Deferred: the node is full", deferred.Reason+": "+deferred.Message)
	require.Equal(t, "cpu=250m/500m", podtest.Amounts(&deferred.Pod.Spec.Containers[0].Resources))

	infeasible := d.Infeasible("the node is small")
	require.Equal(t, "Infeasible: the node is small", infeasible.Reason+": "+infeasible.Message)
	require.Equal(t, deferred.Pod, infeasible.Pod)
}

// A pod as a whole that may not have what its spec asks for keeps what its cgroup is for.
func TestPodAsAWholeIsRefused(t *testing.T) {
	pod := podtest.Pod("a")
	pod.Spec.Containers[0].Resources = requirements("cpu=100m/500m")
	pod.Spec.Resources = new(requirements("cpu=1/2"))
	d := resize.Decide(resize.State{
		Pod: pod, Fixed: true, Sized: &resize.Sizes{Pod: new(sized("cpu=500m/1"))},
		Observed: cri.Pod{Containers: []cri.Container{made(t, "main", "cpu=100m/500m", running)}},
	})
	require.Equal(t, corev1.PodReasonInfeasible, d.Reason)
	require.Equal(t, "cpu=500m/1", podtest.Amounts(d.Pod.Spec.Resources))
	require.Equal(t, "cpu=1/2", podtest.Amounts(pod.Spec.Resources))
}

// The cgroup of a pod stays as it is when an init container is resized that has completed. What is in force counts that one as before.
func TestResizeOfCompletedInitContainer(t *testing.T) {
	tests := map[string]struct {
		state    cri.ContainerState
		exitCode int32
		want     string // the request of CPU in force
	}{
		"completed": {exited, 0, "300m"},
		"failed":    {exited, 1, "allocated"}, // it starts again, for which the cgroup of the pod is resized
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := podtest.Pod("a")
			pod.Spec.Containers[0].Resources = requirements("cpu=100m/1")
			setup := podtest.Init("setup")
			setup.Resources = requirements("cpu=200m/1")
			pod.Spec.InitContainers = []corev1.Container{setup}
			was := made(t, "setup", "cpu=300m/1", test.state)
			was.ExitCode = test.exitCode
			sizes := &resize.Sizes{Containers: []resize.ContainerSize{{Name: "setup", Size: sized("cpu=300m/1")}}}
			s := resize.State{
				Pod: pod, Allocated: resize.AllocationOf(pod), Sized: sizes,
				Observed: cri.Pod{Containers: []cri.Container{was, made(t, "main", "cpu=100m/1", running)}},
			}
			d := resize.Decide(s)
			require.False(t, d.InProgress)
			require.Empty(t, d.Containers)
			require.False(t, d.Resizes())
			have := "allocated"
			if d.InForce != nil {
				have = d.InForce.Spec.InitContainers[0].Resources.Requests.Cpu().String()
			}
			require.Equal(t, test.want, have)

			s.NoCgroup = true
			require.Nil(t, resize.Decide(s).InForce, "the runtime has the cgroup of the pod")
			s.NoCgroup, s.Fixed = false, true
			require.Nil(t, resize.Decide(s).InForce, "what a runtime cannot change is allocated")
		})
	}
	pod := podtest.Pod("a")
	require.Same(t, pod, resize.WithInitSizes(pod, &resize.Sizes{Containers: []resize.ContainerSize{{Name: "main", Size: sized("cpu=300m/1")}}}))
}
