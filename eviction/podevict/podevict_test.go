// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podevict_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/eviction/podevict"
)

const (
	mi = 1 << 20
	gi = 1 << 30
)

func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

// pod returns a pod with one container.
func pod(name string, requests, limits corev1.ResourceList) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)}}
	p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}}
	return p
}

// podStats returns the stats of the named pod with one container: its memory, rootfs and logs in bytes.
func podStats(name string, memory, rootfs, logs uint64) statsapi.PodStats {
	return statsapi.PodStats{
		PodRef: statsapi.PodReference{UID: name, Name: name, Namespace: "default"}, Memory: &statsapi.MemoryStats{WorkingSetBytes: &memory},
		EphemeralStorage: &statsapi.FsStats{UsedBytes: new(rootfs + logs)},
		Containers: []statsapi.ContainerStats{{
			Name: "c", Memory: &statsapi.MemoryStats{WorkingSetBytes: &memory},
			Rootfs: &statsapi.FsStats{UsedBytes: &rootfs}, Logs: &statsapi.FsStats{UsedBytes: &logs},
		}},
	}
}

func TestReadings(t *testing.T) {
	at := metav1.NewTime(time.Unix(1e9, 0))
	limit, running := int64(100), int64(120)
	s := &statsapi.Summary{Node: statsapi.NodeStats{
		Memory: &statsapi.MemoryStats{Time: at, AvailableBytes: new(uint64(gi)), WorkingSetBytes: new(uint64(3 * gi))},
		SystemContainers: []statsapi.ContainerStats{{Name: "kubelet"}, {
			Name: "pods", Memory: &statsapi.MemoryStats{AvailableBytes: new(uint64(math.MaxUint64 - 9)), WorkingSetBytes: new(uint64(110))},
		}},
		Fs: &statsapi.FsStats{Time: at, AvailableBytes: new(uint64(5)), CapacityBytes: new(uint64(10)), InodesFree: new(uint64(0)), Inodes: new(uint64(0))},
		Runtime: &statsapi.RuntimeStats{
			ImageFs:     &statsapi.FsStats{AvailableBytes: new(uint64(1 << 63)), CapacityBytes: new(uint64(1)), InodesFree: new(uint64(3)), Inodes: new(uint64(7))},
			ContainerFs: &statsapi.FsStats{AvailableBytes: new(uint64(1))},
		},
		Rlimit: &statsapi.RlimitStats{Time: at, MaxPID: &limit, NumOfRunningProcesses: &running},
	}}
	readings, err := podevict.Readings(s)
	require.EqualError(t, err, "reading of imagefs.available: available 9223372036854775808 and capacity 1: more than 2^63-1")
	require.Equal(t, []eviction.Reading{
		{Signal: eviction.MemoryAvailable, Available: gi, Capacity: 4 * gi, Time: at.Time},
		{Signal: eviction.AllocatableMemoryAvailable, Available: -10, Capacity: 100},
		{Signal: eviction.NodeFSAvailable, Available: 5, Capacity: 10, Time: at.Time},
		{Signal: eviction.ImageFSInodesFree, Available: 3, Capacity: 7},
		{Signal: eviction.PIDAvailable, Available: -20, Capacity: 100, Time: at.Time},
	}, readings)

	readings, err = podevict.Readings(&statsapi.Summary{})
	require.NoError(t, err)
	require.Empty(t, readings)
	_, err = podevict.Readings(&statsapi.Summary{Node: statsapi.NodeStats{Memory: &statsapi.MemoryStats{AvailableBytes: new(uint64(1 << 62)), WorkingSetBytes: new(uint64(1 << 62))}}})
	require.ErrorContains(t, err, "reading of memory.available: availableBytes 4611686018427387904 and workingSetBytes 4611686018427387904")
}

func TestCandidates(t *testing.T) {
	a := pod("a", list("memory", "100Mi", "ephemeral-storage", "1Gi"), nil)
	a.Spec.Priority, a.Spec.Overhead = new(int32(7)), list("memory", "10Mi", "ephemeral-storage", "1")
	seconds := int64(30)
	a.Spec.TerminationGracePeriodSeconds = &seconds
	a.Spec.Volumes = []corev1.Volume{
		{Name: "cache", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "tmpfs", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
		{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}},
		{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}},
	}
	stats := podStats("a", 200*mi, 5, 6)
	stats.Swap = &statsapi.SwapStats{SwapUsageBytes: new(uint64(9))}
	stats.ProcessStats = &statsapi.ProcessStats{ProcessCount: new(uint64(4))}
	for i, v := range a.Spec.Volumes {
		stats.VolumeStats = append(stats.VolumeStats, statsapi.VolumeStats{Name: v.Name, FsStats: statsapi.FsStats{UsedBytes: new(uint64(1 << (10 * i))), InodesUsed: new(uint64(i))}})
	}
	stats.Containers = append(stats.Containers, statsapi.ContainerStats{Name: "x", Logs: &statsapi.FsStats{UsedBytes: new(uint64(10))}})
	b, static := pod("b", nil, nil), pod("static", nil, nil)
	static.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	wrong := podStats("b", 1<<63, 0, 7)

	s := &statsapi.Summary{Pods: []statsapi.PodStats{stats, wrong}}
	got, err := podevict.Candidates([]*corev1.Pod{a, b, static}, s, podevict.Options{Evicting: func(p *corev1.Pod) bool { return p == b }})
	require.EqualError(t, err, "pod default/b: workingSetBytes 9223372036854775808: more than 2^63-1")
	require.Equal(t, []eviction.Candidate{
		{
			UID: "a", Name: "default/a", Priority: 7, GracePeriod: 30 * time.Second, HasGracePeriod: true, Measured: true, Memory: 200 * mi, Swap: 9,
			MemoryRequest: 110 * mi, Tasks: 4, Rootfs: eviction.Usage{Bytes: 5}, Logs: eviction.Usage{Bytes: 16},
			Volumes: eviction.Usage{Bytes: 1 + 1<<20, Inodes: 2}, StorageRequest: gi + 1,
		},
		{UID: "b", Name: "default/b", Measured: true, Logs: eviction.Usage{Bytes: 7}, Evicting: true},
		{UID: "static", Name: "default/static", Critical: true},
	}, got)

	a.Spec.Resources = &corev1.ResourceRequirements{Requests: list("memory", "1Gi")}
	static.Spec.Priority = new(int32(1_999_999_999))
	got, err = podevict.Candidates([]*corev1.Pod{a, static}, &statsapi.Summary{}, podevict.Options{EvictStatic: true})
	require.NoError(t, err)
	require.EqualValues(t, gi+10*mi, got[0].MemoryRequest)
	require.Zero(t, got[0].StorageRequest, "pod-level resources without ephemeral storage request none")
	require.False(t, got[1].Critical)
	static.Spec.Priority = new(int32(2_000_000_000))
	got, _ = podevict.Candidates([]*corev1.Pod{static}, &statsapi.Summary{}, podevict.Options{EvictStatic: true})
	require.True(t, got[0].Critical)
}

// addEmptyDir adds an emptyDir with a size limit to p, and its usage in bytes to s.
func addEmptyDir(p *corev1.Pod, s *statsapi.PodStats, limit string, bytes uint64) {
	q := resource.MustParse(limit)
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &q}}}}
	s.VolumeStats = []statsapi.VolumeStats{{Name: "v", FsStats: statsapi.FsStats{UsedBytes: &bytes}}}
}

func TestCandidatesExceedingStorageLimits(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	for name, test := range map[string]struct {
		make   func(p *corev1.Pod, s *statsapi.PodStats)
		layout eviction.Layout
		want   *eviction.ExceededLimit
	}{
		"emptyDir": {func(p *corev1.Pod, s *statsapi.PodStats) { addEmptyDir(p, s, "1Gi", 2*gi) }, 0, &eviction.ExceededLimit{
			Signal: eviction.EmptyDirLimit, Message: `Usage of EmptyDir volume "v" exceeds the limit "1Gi". `,
		}},
		"emptyDir at its limit":    {func(p *corev1.Pod, s *statsapi.PodStats) { addEmptyDir(p, s, "1Gi", gi) }, 0, nil},
		"emptyDir without a limit": {func(p *corev1.Pod, s *statsapi.PodStats) { addEmptyDir(p, s, "0", gi) }, 0, nil},
		"emptyDir of 2^63 bytes":   {func(p *corev1.Pod, s *statsapi.PodStats) { addEmptyDir(p, s, "1Gi", 1<<63) }, 0, nil},
		"emptyDir without a measurement": {func(p *corev1.Pod, s *statsapi.PodStats) {
			addEmptyDir(p, s, "1Gi", 0)
			s.VolumeStats[0].UsedBytes = nil
		}, 0, nil},
		"pod": {func(p *corev1.Pod, _ *statsapi.PodStats) {
			p.Spec.Containers[0].Resources.Limits = list("ephemeral-storage", "99Mi")
		}, 0, &eviction.ExceededLimit{
			Signal: eviction.PodLimit, Message: "Pod ephemeral local storage usage exceeds the total limit of containers 99Mi. ",
		}},
		"pod at its limit": {func(p *corev1.Pod, _ *statsapi.PodStats) {
			p.Spec.Containers[0].Resources.Limits = list("ephemeral-storage", "100Mi")
		}, 0, nil},
		"limit of zero applies to the pod": {func(p *corev1.Pod, _ *statsapi.PodStats) {
			p.Spec.Containers[0].Resources.Limits = list("ephemeral-storage", "0")
		}, 0, &eviction.ExceededLimit{
			Signal: eviction.PodLimit, Message: "Pod ephemeral local storage usage exceeds the total limit of containers 0. ",
		}},
		"sidecar": {func(p *corev1.Pod, s *statsapi.PodStats) {
			p.Spec.InitContainers = []corev1.Container{{Name: "s", RestartPolicy: &always, Resources: corev1.ResourceRequirements{Limits: list("ephemeral-storage", "10Mi")}}}
			s.Containers[0].Name, s.EphemeralStorage = "s", nil
		}, 0, &eviction.ExceededLimit{Signal: eviction.ContainerLimit, Message: `Container s exceeded its local ephemeral storage limit "10Mi". `}},
		"init container": {func(p *corev1.Pod, s *statsapi.PodStats) {
			p.Spec.InitContainers = []corev1.Container{{Name: "i", Resources: corev1.ResourceRequirements{Limits: list("ephemeral-storage", "10Mi")}}}
			s.Containers[0].Name, s.EphemeralStorage = "i", nil
		}, 0, nil},
		"writable layer on another filesystem": {func(p *corev1.Pod, s *statsapi.PodStats) {
			p.Spec.Containers[0].Resources.Limits = list("ephemeral-storage", "50Mi")
			s.EphemeralStorage = nil
		}, eviction.DedicatedImageFS, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p, s := pod("a", nil, nil), podStats("a", 0, 50*mi, 50*mi)
			test.make(p, &s)
			summary := &statsapi.Summary{Pods: []statsapi.PodStats{s}}
			got, _ := podevict.Candidates([]*corev1.Pod{p}, summary, podevict.Options{Layout: test.layout})
			require.Equal(t, test.want, got[0].ExceededLimit)
			got, _ = podevict.Candidates([]*corev1.Pod{p}, summary, podevict.Options{NoLocalStorage: true})
			require.Nil(t, got[0].ExceededLimit)
		})
	}
}

func TestExplain(t *testing.T) {
	p := pod("a", list("memory", "100Mi", "ephemeral-storage", "10Mi"), nil)
	s := &statsapi.Summary{Pods: []statsapi.PodStats{podStats("a", 200*mi, 5*mi, 6*mi)}}
	why := podevict.Explain(eviction.Eviction{Signal: eviction.MemoryAvailable, Message: "The node was low on resource: memory. "}, p, s)
	require.Equal(t, "Evicted", why.Reason)
	require.Equal(t, "The node was low on resource: memory. Container c was using 200Mi, request is 100Mi, has larger consumption of memory. ", why.Message)
	require.Equal(t, map[string]string{"offending_containers": "c", "offending_containers_usage": "200Mi", "starved_resource": "memory"}, why.Annotations)
	require.Equal(t, []corev1.PodCondition{{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "TerminationByKubelet", Message: why.Message,
	}}, why.Conditions)

	p.Spec.Resources = &corev1.ResourceRequirements{Requests: list("memory", "1Gi")}
	why = podevict.Explain(eviction.Eviction{Signal: eviction.AllocatableMemoryAvailable}, p, s)
	require.Equal(t, "Pod a was using 200Mi, request is 1Gi, has larger consumption of memory. Container c was using 200Mi, request is 100Mi, has larger consumption of memory. ", why.Message)
	require.Equal(t, "200Mi", why.Annotations[podevict.OffendingPodUsageKey])

	why = podevict.Explain(eviction.Eviction{Signal: eviction.NodeFSAvailable}, p, s)
	require.Equal(t, "Container c was using 11Mi, request is 10Mi, has larger consumption of ephemeral-storage. ", why.Message)
	why = podevict.Explain(eviction.Eviction{Signal: eviction.PIDAvailable}, p, s)
	require.Equal(t, map[string]string{"offending_containers": "", "offending_containers_usage": "", "starved_resource": "pids"}, why.Annotations)
	why = podevict.Explain(eviction.Eviction{Signal: eviction.PIDAvailable, Message: "m"}, pod("unknown", nil, nil), s)
	require.Empty(t, why.Annotations)
	require.Len(t, why.Conditions, 1)
	why = podevict.Explain(eviction.Eviction{Signal: eviction.EmptyDirLimit, Message: "m"}, p, s)
	require.Equal(t, podevict.Explanation{Reason: "Evicted", Message: "m"}, why)
}

func TestAdmit(t *testing.T) {
	memory, both := []eviction.Condition{eviction.MemoryPressure}, []eviction.Condition{eviction.MemoryPressure, eviction.DiskPressure}
	bestEffort, burstable := pod("a", nil, nil), pod("b", list("memory", "1Mi"), nil)
	tolerates := func(key string) *corev1.Pod {
		p := pod("c", nil, nil)
		p.Spec.Tolerations = []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
		return p
	}
	static := pod("d", nil, nil)
	static.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	critical := pod("e", nil, nil)
	critical.Spec.Priority = new(int32(2_000_000_000))
	for _, test := range []struct {
		pod        *corev1.Pod
		conditions []eviction.Condition
		held       bool
		want       string
	}{
		{bestEffort, nil, true, ""},
		{bestEffort, memory, false, "The node had condition: [MemoryPressure]. "},
		{tolerates(corev1.TaintNodeMemoryPressure), memory, false, ""},
		{tolerates(corev1.TaintNodeDiskPressure), memory, false, "The node had condition: [MemoryPressure]. "},
		{tolerates(""), memory, false, ""},
		{burstable, memory, false, ""},
		{burstable, both, false, "The node had condition: [MemoryPressure DiskPressure]. "},
		{burstable, both[1:], false, "The node had condition: [DiskPressure]. "},
		{static, both, false, ""},
		{static, memory, true, "The node had condition: [MemoryPressure]. "},
		{critical, both, true, ""},
	} {
		err := podevict.Admit(test.pod, test.conditions, test.held)
		if test.want == "" {
			require.NoError(t, err, test.pod.Name)
			continue
		}
		require.EqualError(t, err, test.want, test.pod.Name)
		var refusal *podevict.Refusal
		require.ErrorAs(t, err, &refusal)
		require.Equal(t, "Evicted", refusal.Reason)
	}
}

func TestPreempt(t *testing.T) {
	critical := pod("critical", nil, nil)
	critical.Spec.Priority = new(int32(2_000_000_000))
	guaranteed := func(name, memory string) *corev1.Pod {
		return pod(name, list("memory", memory, "cpu", "1"), list("memory", memory, "cpu", "1"))
	}
	static := pod("static", list("memory", "10Gi"), nil)
	static.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	others := []*corev1.Pod{
		pod("best", nil, nil), pod("burst1", list("memory", "100Mi"), nil), pod("burst2", list("memory", "200Mi"), nil),
		guaranteed("g1", "300Mi"), guaranteed("g2", "500Mi"), static,
	}
	for _, test := range []struct {
		short []podevict.Shortage
		want  string
	}{
		{nil, "[]"},
		{[]podevict.Shortage{{"memory", 0}, {"cpu", -5}}, "[]"},
		{[]podevict.Shortage{{"pods", 1}}, "[best]"},
		{[]podevict.Shortage{{"memory", 50 * mi}}, "[burst1]"},
		{[]podevict.Shortage{{"memory", 150 * mi}}, "[burst2]"},
		{[]podevict.Shortage{{"memory", 300 * mi}}, "[burst2 burst1]"},
		{[]podevict.Shortage{{"memory", 301 * mi}}, "[burst1 g1]"},
		{[]podevict.Shortage{{"memory", 650 * mi}}, "[burst2 g2]"},
		{[]podevict.Shortage{{"cpu", 1500}}, "[g1 g2]"},
	} {
		got, err := podevict.Preempt(critical, others, test.short)
		require.NoError(t, err)
		names := []string{}
		for _, p := range got {
			names = append(names, p.Name)
		}
		require.Equal(t, test.want, fmt.Sprint(names), test.short)
	}
	_, err := podevict.Preempt(critical, others, []podevict.Shortage{{"memory", 2 * gi}, {"cpu", 1}, {"example.com/gpu", 3}})
	require.EqualError(t, err, "preempt pods for default/critical: all that may go leave 994050048 of memory, 3 of example.com/gpu missing")
	why := podevict.ExplainPreemption()
	require.Equal(t, "Preempting", why.Reason)
	require.Equal(t, "Pod was preempted by Kubelet to accommodate a critical pod.", why.Conditions[0].Message)
}

func ExampleExplain() {
	p := pod("web", list("memory", "100Mi"), nil)
	s := &statsapi.Summary{Pods: []statsapi.PodStats{podStats("web", 150*mi, 0, 0)}}
	candidates, _ := podevict.Candidates([]*corev1.Pod{p}, s, podevict.Options{})
	policy, _ := eviction.NewPolicy(eviction.Rules{Thresholds: []eviction.Threshold{{Signal: eviction.MemoryAvailable, Value: eviction.Amount{Absolute: 100 * mi, Format: eviction.BinarySI}}}})
	d := policy.Decide(eviction.State{}, eviction.Observation{
		Readings: []eviction.Reading{{Signal: eviction.MemoryAvailable, Available: 50 * mi, Capacity: gi}}, Candidates: candidates, Measured: true,
	}, time.Unix(0, 0))
	why := podevict.Explain(d.Evict[0], p, s)
	fmt.Printf("%q\n", why.Message)
	// Output:
	// "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container c was using 150Mi, request is 100Mi, has larger consumption of memory. "
}

// A critical pod needs memory: the pods to preempt.
func ExamplePreempt() {
	critical := pod("dns", list("memory", "300Mi"), nil)
	critical.Spec.Priority = new(int32(2_000_001_000))
	running := []*corev1.Pod{pod("web", list("memory", "200Mi"), nil), pod("batch", list("memory", "400Mi"), nil)}
	chosen, err := podevict.Preempt(critical, running, []podevict.Shortage{{Resource: corev1.ResourceMemory, Missing: 300 * mi}})
	for _, p := range chosen {
		fmt.Println(p.UID, podevict.ExplainPreemption().Reason == podevict.ReasonPreempting, err)
	}
	// Output: batch true <nil>
}

// Admission under pressure, with the kubelet's reason.
func ExampleAdmit() {
	err := podevict.Admit(pod("batch", nil, nil), []eviction.Condition{eviction.DiskPressure}, false)
	if refusal, ok := errors.AsType[*podevict.Refusal](err); ok && refusal.Reason == podevict.ReasonEvicted {
		fmt.Printf("%q\n", refusal.Message)
	}
	// Output: "The node had condition: [DiskPressure]. "
}
