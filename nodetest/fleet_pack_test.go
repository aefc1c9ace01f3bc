// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/nodetest"
	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// runPackedFleet calls test in a bubble with a Fleet of two nodes, whose memory is packed after packAfter. Its jobs run for a second.
func runPackedFleet(t *testing.T, packAfter time.Duration, test func(f *fleet, all *nodetest.Fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{t: t, server: apiservertest.NewServer(apiservertest.Options{RequestLog: 10_000})}
		defer f.server.Close()
		f.packAfter = packAfter
		all := f.start(2, func(o *nodetest.FleetOptions) {
			for i := range o.Nodes {
				o.Nodes[i].Behave = func(pod *corev1.Pod, _ string) (b nodetest.Behavior, ok bool) {
					b.Exit = &critest.Exit{After: time.Second}
					return b, pod.Spec.RestartPolicy == corev1.RestartPolicyNever
				}
			}
		})
		defer func() { f.stop() }() // also after a failed check
		test(f, all)
	})
}

// newSettlingPods returns pods that run, complete or are rejected.
func newSettlingPods() []*corev1.Pod {
	plain, limited := nodetest.NewPod("plain", nodetest.Resources{}, ""), nodetest.NewPod("limited", nodetest.Resources{CPU: "100m", CPULimit: "200m", Memory: "64Mi", MemoryLimit: "1Gi"}, "")
	limited.Labels, limited.Annotations = map[string]string{"app": "web"}, map[string]string{}
	limited.Spec.InitContainers = []corev1.Container{{Name: "side", Image: "any", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
	limited.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	job, large := nodetest.NewPod("job", nodetest.Resources{}, ""), nodetest.NewPod("large", nodetest.Resources{CPU: "64"}, "")
	job.Spec.RestartPolicy = corev1.RestartPolicyNever
	gated := nodetest.NewPod("gated", nodetest.Resources{}, "")
	gated.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/ready"}}
	gated.Spec.HostNetwork = true
	return []*corev1.Pod{plain, limited, job, large, gated}
}

// describeMachine returns the disks, cgroups and processes of a machine.
func describeMachine(t *testing.T, m *machine.Machine) string {
	text := fmt.Sprint(m.Elapsed(), m.Settled(), m.DiskUsage(machine.NodeDisk), m.DiskUsage(machine.ImageDisk))
	var describe func(p cgroups.Path)
	describe = func(p cgroups.Path) {
		tree := m.Cgroups()
		stats, err := tree.Stats(t.Context(), p)
		require.NoError(t, err)
		limits, err := tree.Limits(t.Context(), p)
		require.NoError(t, err)
		pids, err := tree.Procs(t.Context(), p)
		require.NoError(t, err)
		encoded, err := json.Marshal([]any{p, stats, limits})
		require.NoError(t, err)
		text += string(encoded)
		for _, pid := range pids {
			process, _ := tree.Proc(pid)
			text += fmt.Sprintf("%+v", process)
		}
		children, err := tree.Children(t.Context(), p)
		require.NoError(t, err)
		for _, c := range children {
			describe(p.Join(c))
		}
	}
	describe("")
	return text
}

// A node has the same state after it was packed and unpacked, at each time at which this is possible.
func TestPackedNodeIsRestored(t *testing.T) {
	runPackedFleet(t, -1, func(f *fleet, all *nodetest.Fleet) {
		f.advance(time.Second)
		f.add(newSettlingPods()...)
		count := 0
		for range 240 {
			f.advance(5 * time.Second)
			n, err := nodetest.RepackNodes(all, func(m *machine.Machine) string { return describeMachine(t, m) }, func(before, after any) {
				if kind := fmt.Sprintf("%T", before); kind != "**nodetest.Options" && kind != "**nodetest.loopSetup" {
					require.True(t, reflect.DeepEqual(before, after), kind)
					return
				}
				require.Empty(t, cmp.Diff(before, after, // functions are never deeply equal
					cmp.Exporter(func(reflect.Type) bool { return true }), cmp.Comparer(func(a, b *eviction.Policy) bool { return a == b }),
					cmp.FilterValues(func(a, b any) bool { return reflect.TypeOf(a).Kind() == reflect.Func }, cmp.Comparer(func(a, b any) bool {
						return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
					}))))
			})
			require.NoError(t, err)
			count += n
		}
		require.Greater(t, count, 300, "of 480")
		require.Equal(t, "OutOfcpu", f.pod("large").Status.Reason)
	})
}

// uids matches the UIDs of the API server in memory, which count all requests.
var uids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-4000-8000-[0-9a-f]{12}`)

// runPodChanges runs pods on two nodes of a Fleet, and changes and deletes them. It returns the requests for pods and events by object, and the size of
// the packed memory before the changes.
func runPodChanges(t *testing.T, packAfter time.Duration) (requests []string, packed, size int) {
	runPackedFleet(t, packAfter, func(f *fleet, all *nodetest.Fleet) {
		f.advance(time.Second)
		f.add(append(newSettlingPods(), nodetest.NewPod("leak", nodetest.Resources{Memory: "100Mi"}, "memory=ramp(64Mi,8Gi,4m)"))...)
		probed, other := nodetest.NewPod("probed", nodetest.Resources{}, ""), nodetest.NewPod("other", nodetest.Resources{}, "")
		probed.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80)}}}
		probed.Spec.NodeName, other.Spec.NodeName = "n1", "n1"
		f.add(probed, other)
		f.advance(12 * time.Minute)
		require.NoError(t, f.server.Delete(probed, nil))
		f.advance(time.Minute)
		packed, size = nodetest.PackedNodes(all)

		update := func(name string, change func(p *corev1.Pod)) {
			p := f.pod(name).DeepCopy()
			change(p)
			require.NoError(t, f.server.Put(p))
			f.advance(time.Minute)
		}
		update("plain", func(p *corev1.Pod) { p.Labels = map[string]string{"new": "label"} })
		update("gated", func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: "example.com/ready", Status: corev1.ConditionTrue})
		})
		update("limited", func(p *corev1.Pod) { p.Spec.Containers[0].Image, p.Generation = "newer", p.Generation+1 })
		f.add(nodetest.NewPod("late", nodetest.Resources{}, ""))
		f.advance(time.Minute)
		for _, name := range []string{"plain", "limited", "job", "leak", "other", "gated"} {
			require.NoError(t, f.server.Delete(f.pod(name), nil))
			f.advance(time.Minute)
		}
		require.Equal(t, corev1.PodRunning, f.pod("late").Status.Phase)
		require.True(t, strings.Contains(fmt.Sprint(apiservertest.List[*corev1.Event](f.server)), "Evicted"))
		for _, resource := range []string{"pods", "events"} {
			for _, r := range f.server.Requests(apiservertest.Match{Resource: resource}) {
				if r.Verb != "list" && r.Verb != "watch" {
					requests = append(requests, fmt.Sprint(r.At.Format(time.TimeOnly), " ", r.Verb, " ", r.Resource, "/", r.Subresource, " ", r.Name, " ", r.Code, " ", uids.ReplaceAllString(string(r.Body), "UID")))
				}
			}
		}
	})
	slices.Sort(requests)
	return requests, packed, size
}

// Nodes whose memory is packed whenever they are idle send the same requests as nodes whose memory is never packed.
func TestPackingChangesNoRequest(t *testing.T) {
	want, packed, _ := runPodChanges(t, -1)
	require.Zero(t, packed)
	require.NotEmpty(t, want)
	for _, packAfter := range []time.Duration{0, time.Second, 7 * time.Second} {
		got, packed, size := runPodChanges(t, packAfter)
		require.True(t, slices.Equal(want, got), cmp.Diff(want, got))
		require.Equal(t, 2, packed)
		t.Logf("two nodes with eight pods are packed in %d bytes", size)
	}
}

// A packed node renews its lease, reports its status, and registers again after its deletion.
func TestPackedNodeReportsStatus(t *testing.T) {
	runPackedFleet(t, 0, func(f *fleet, all *nodetest.Fleet) {
		f.advance(time.Minute)
		packed, _ := nodetest.PackedNodes(all)
		require.Equal(t, 2, packed)
		f.server.ForgetRequests()
		f.advance(time.Hour)
		require.InDelta(t, 2*12, f.count("patch", "nodes"), 8)
		require.InDelta(t, 2*360, f.count("update", "leases"), 20)
		require.NoError(t, f.server.Delete(f.node("n1"), nil))
		f.advance(time.Minute)
		require.Equal(t, corev1.ConditionTrue, conditionStatus(f.node("n1"), corev1.NodeReady))
		packed, _ = nodetest.PackedNodes(all)
		require.Equal(t, 2, packed)
	})
}
