// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/nodetest"
	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// runNode runs test in a bubble with a node.
func runNode(t *testing.T, o nodetest.Options, test func(t *testing.T, n *nodetest.Node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, nodetest.New(t, o)) })
}

func TestNodeReportsPressureAndStatus(t *testing.T) {
	runNode(t, nodetest.Options{Name: "n1", Machine: machine.Spec{CPUs: 2, Memory: 4 << 30}}, func(t *testing.T, n *nodetest.Node) {
		require.NoError(t, n.Add(nodetest.NewPod("leak", nodetest.Resources{}, "memory=ramp(0,4Gi,1m)")))
		n.Advance(90 * time.Second)
		node, ok := apiservertest.Get[*corev1.Node](n.API(), "", "n1")
		require.True(t, ok)
		assert.Equal(t, int64(4<<30), node.Status.Capacity.Memory().Value())
		assert.Equal(t, int64(2), node.Status.Capacity.Cpu().Value())
		assert.Contains(t, fmt.Sprint(node.Status.Conditions), "MemoryPressure True")
		pod, ok := n.Pod("leak")
		require.True(t, ok)
		assert.Equal(t, corev1.PodFailed, pod.Status.Phase)
		assert.Equal(t, "Evicted", pod.Status.Reason)
	})
}

func TestBehaveReplacesAnnotations(t *testing.T) {
	o := nodetest.Options{Behave: func(pod *corev1.Pod, container string) (nodetest.Behavior, bool) {
		return nodetest.Behavior{Usage: nodetest.Usage{Memory: nodetest.Constant(64 << 20)}}, pod.Name == "coded" && container == "main"
	}}
	runNode(t, o, func(t *testing.T, n *nodetest.Node) {
		require.NoError(t, n.Add(nodetest.NewPod("coded", nodetest.Resources{}, "memory=1Mi"), nodetest.NewPod("noted", nodetest.Resources{}, "memory=1Mi")))
		n.Advance(time.Minute)
		for name, want := range map[string]uint64{"coded": 64 << 20, "noted": 1 << 20} {
			s, err := n.Stats(name)
			require.NoError(t, err)
			assert.Equal(t, want, s.Memory.Current, name)
		}
	})
}

func TestAnnotationOfContainerPrecedesThatOfPod(t *testing.T) {
	runNode(t, nodetest.Options{}, func(t *testing.T, n *nodetest.Node) {
		pod := nodetest.NewPod("two", nodetest.Resources{}, "memory=1Mi")
		second := *pod.Spec.Containers[0].DeepCopy()
		second.Name = "second"
		pod.Spec.Containers = append(pod.Spec.Containers, second)
		pod.Annotations[nodetest.AnnotationUsage+".second"] = "memory=10Mi"
		require.NoError(t, n.Add(pod))
		n.Advance(time.Minute)
		s, err := n.Stats("two")
		require.NoError(t, err)
		assert.Equal(t, uint64(11<<20), s.Memory.Current)
	})
}

func TestInvalidAnnotationIsTheErrorOfTheStart(t *testing.T) {
	runNode(t, nodetest.Options{}, func(t *testing.T, n *nodetest.Node) {
		require.NoError(t, n.Add(nodetest.NewPod("bad", nodetest.Resources{}, "memory=much")))
		n.Advance(time.Minute)
		failed := n.Log().Match("default/bad", nodetest.KindEvent, "Failed")
		require.NotEmpty(t, failed)
		assert.Contains(t, failed[0].Message, `pod default/bad: annotation nodetest/usage: field "memory=much": "much" is no quantity`)
	})
}

func TestProbesAreAnsweredByTheBehavior(t *testing.T) {
	o := nodetest.Options{Behave: func(*corev1.Pod, string) (nodetest.Behavior, bool) {
		return nodetest.Behavior{Probe: func(_ context.Context, age time.Duration, command []string) error {
			if age < 40*time.Second && command[0] == "http" {
				return errors.New("warming up")
			}
			return nil
		}}, true
	}}
	runNode(t, o, func(t *testing.T, n *nodetest.Node) {
		pod := nodetest.NewPod("web", nodetest.Resources{}, "")
		pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/"}}, PeriodSeconds: 10,
		}
		require.NoError(t, n.Add(pod))
		n.Advance(5 * time.Minute)
		ready := n.Log().Match("default/web", nodetest.KindReady, "True")
		require.Len(t, ready, 1)
		assert.InDelta(t, 45, ready[0].At.Seconds(), 6)
		assert.NotEmpty(t, n.Log().Match("default/web", nodetest.KindEvent, "Unhealthy"))
		assert.Zero(t, n.Log().NotReady("default/web", n.Age()))
	})
}

// The collector of a real node measures pods with a running container only, and a pod that is not measured is evicted first, as in the kubelet.
func TestPodThatWaitsForARestartIsEvictedFirst(t *testing.T) {
	runNode(t, nodetest.Options{Machine: machine.Spec{Memory: 4 << 30}}, func(t *testing.T, n *nodetest.Node) {
		crash := nodetest.NewPod("crash", nodetest.Resources{Memory: "100Mi"}, "memory=1Mi exit=1@1s")
		crash.Spec.Priority = new(int32(1000))
		require.NoError(t, n.Add(crash, nodetest.NewPod("leak", nodetest.Resources{}, "memory=ramp(0,8Gi,20m)")))
		n.Advance(20 * time.Minute)
		assert.Equal(t, []string{"default/crash", "default/leak"}, n.Log().Evicted())
	})
}

func TestPodExitsAndTerminates(t *testing.T) {
	runNode(t, nodetest.Options{}, func(t *testing.T, n *nodetest.Node) {
		job := nodetest.NewPod("job", nodetest.Resources{}, "cpu=1 exit=0@30s")
		job.Spec.RestartPolicy = corev1.RestartPolicyNever
		require.NoError(t, n.Add(job, nodetest.NewPod("slow", nodetest.Resources{}, "stop=10s")))
		n.Advance(time.Minute)
		require.NoError(t, n.Delete("slow"))
		n.Advance(time.Minute)
		phases := n.Log().Phases("default/job", n.Age())
		assert.InDelta(t, 30, phases["Running"].Seconds(), 1)
		exits := n.Log().Match("default/slow", nodetest.KindExit, "")
		require.Len(t, exits, 1)
		assert.InDelta(t, 70, exits[0].At.Seconds(), 1)
		_, exists := n.Pod("slow")
		assert.False(t, exists)
		require.ErrorContains(t, n.Delete("slow"), "pod slow: not found")
		_, err := n.Stats("slow")
		require.ErrorContains(t, err, "pod slow: not found")
	})
}

// A container may exit before the hook of its start has run.
func TestContainerThatExitsAtOnceLeavesNothing(t *testing.T) {
	runNode(t, nodetest.Options{}, func(t *testing.T, n *nodetest.Node) {
		for i := range 20 {
			pod := nodetest.NewPod(fmt.Sprint("job-", i), nodetest.Resources{}, "memory=10Mi layer=1Mi exit=0@0s")
			pod.Spec.RestartPolicy = corev1.RestartPolicyNever
			require.NoError(t, n.Add(pod))
		}
		n.Advance(time.Minute)
		s, err := n.Machine().Cgroups().Stats(t.Context(), "")
		require.NoError(t, err)
		assert.Zero(t, s.Memory.Current)
		assert.Equal(t, uint64(1), s.Pids.Current, "the process of the system")
		for i := range 20 {
			require.NoError(t, n.Delete(fmt.Sprint("job-", i)))
		}
		n.Advance(time.Minute)
		assert.Zero(t, n.Machine().DiskUsage(machine.NodeDisk).UsedBytes, "files are removed with their container")
	})
}

func TestContainerThatCannotStartExits(t *testing.T) {
	runNode(t, nodetest.Options{Machine: machine.Spec{Tasks: 2}}, func(t *testing.T, n *nodetest.Node) {
		require.NoError(t, n.Add(nodetest.NewPod("one", nodetest.Resources{}, "tasks=2"), nodetest.NewPod("two", nodetest.Resources{}, "")))
		n.Advance(time.Minute)
		assert.Len(t, n.Log().Match("", nodetest.KindExit, "128")[0].Pod, len("default/one"))
	})
}

func TestInjectedFaultEndsAfterItsTimes(t *testing.T) {
	runNode(t, nodetest.Options{}, func(t *testing.T, n *nodetest.Node) {
		remove := n.Inject(nodetest.Fault{Op: "StartContainer", Times: 2, Err: errors.New("no luck")})
		defer remove()
		require.NoError(t, n.Add(nodetest.NewPod("web", nodetest.Resources{}, "")))
		n.Advance(5 * time.Minute)
		assert.Len(t, n.Log().Match("default/web", nodetest.KindEvent, "Failed"), 2)
		pod, _ := n.Pod("web")
		assert.Equal(t, corev1.PodRunning, pod.Status.Phase)
	})
}

func TestRebootRestartsContainers(t *testing.T) {
	runNode(t, nodetest.Options{}, func(t *testing.T, n *nodetest.Node) {
		require.NoError(t, n.Add(nodetest.NewPod("web", nodetest.Resources{}, "memory=10Mi")))
		n.Advance(time.Minute)
		before := n.Agent()
		require.NoError(t, n.Reboot(30*time.Second))
		n.Advance(time.Minute)
		assert.NotSame(t, before, n.Agent())
		pod, _ := n.Pod("web")
		assert.Equal(t, int32(1), pod.Status.ContainerStatuses[0].RestartCount)
		assert.Equal(t, corev1.PodRunning, pod.Status.Phase)
	})
}

func TestNodesShareAnAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.NewServer(apiservertest.Options{})
		t.Cleanup(server.Close)
		for _, name := range []string{"n1", "n2"} {
			n := nodetest.New(t, nodetest.Options{Name: name, API: server})
			require.NoError(t, n.Add(nodetest.NewPod("on-"+name, nodetest.Resources{}, "")))
		}
		time.Sleep(time.Minute)
		nodes := apiservertest.List[*corev1.Node](server)
		require.Len(t, nodes, 2)
		assert.NotEqual(t, nodes[0].Status.Addresses[0], nodes[1].Status.Addresses[0])
		for _, pod := range apiservertest.List[*corev1.Pod](server) {
			assert.Equal(t, corev1.PodRunning, pod.Status.Phase, pod.Name)
		}
	})
}

func TestOpenNamesTheInvalidOption(t *testing.T) {
	_, err := nodetest.Open(t.Context(), nodetest.Options{Machine: machine.Spec{CPUs: -1}})
	require.ErrorContains(t, err, "machine.Spec.CPUs -1")
}

func TestSimulateReturnsPanicsAndErrors(t *testing.T) {
	require.ErrorContains(t, nodetest.Simulate(func(context.Context) error { panic("bad luck") }), "panic: bad luck")
	require.ErrorContains(t, nodetest.Simulate(func(context.Context) error { return errors.New("no") }), "no")
	require.NoError(t, nodetest.Simulate(func(context.Context) error { time.Sleep(time.Hour); return nil }))
}

// Volumes of all kinds are not mounted; an emptyDir that grows beyond its size limit is an eviction.
func TestPodsWithVolumesRun(t *testing.T) {
	play := func(t *testing.T, n simulated) {
		pod := nodetest.NewPod("db", nodetest.Resources{}, "volume/data=ramp(0,1Gi,1m)")
		pod.Spec.Volumes = []corev1.Volume{
			{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse("512Mi"))}}},
			{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}}}},
		}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "config", MountPath: "/config"}}
		require.NoError(t, n.Add(pod))
		n.Advance(time.Minute)
		evicted := n.Log().Match("default/db", nodetest.KindEvent, "Evicted")
		require.Len(t, evicted, 1, "%s", n.Log())
		assert.Equal(t, `Usage of EmptyDir volume "data" exceeds the limit "512Mi". `, evicted[0].Message)
	}
	l, err := nodetest.NewLoop(t.Context(), nodetest.Options{})
	require.NoError(t, err)
	play(t, l)
	synctest.Test(t, func(t *testing.T) { play(t, nodetest.New(t, nodetest.Options{})) })
}
