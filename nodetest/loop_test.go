// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/seed81659283/nodeagent/nodetest"
	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// simulated is a Node or a Loop.
type simulated interface {
	Add(pods ...*corev1.Pod) error
	Delete(name string) error
	Advance(d time.Duration)
	Log() nodetest.Log
	RestartAgent(down time.Duration) error
	Reboot(down time.Duration) error
	FillDisk(disk machine.DiskName, bytes int64)
	Inject(f nodetest.Fault) (remove func())
}

// playRandom plays a random scenario: pods with random usage come and go for 20 minutes, and things go wrong.
func playRandom(t *testing.T, n simulated, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	for i := range 4 + random.IntN(8) {
		usage := pick("cpu=0.5", "cpu=diurnal(0.3,0.2,3m)", "cpu=bursts(0.1,2,1m,10s)") + " " +
			pick("memory=100Mi", "memory=ramp(50Mi,2Gi,8m)", "memory=steps(10Mi@0s,700Mi@2m,200Mi@5m)", "memory=ramp(10Mi,300Mi,1m)") + " " +
			pick("", "exit=1@70s", "exit=0@3m", "logs=ramp(0,2Gi,10m)", "layer=ramp(1Mi,3Gi,10m)", "cache=ramp(0,1Gi,5m)", "stop=3s")
		pod := nodetest.NewPod(fmt.Sprintf("pod-%02d", i), nodetest.Resources{
			CPU: pick("", "100m", "500m"), Memory: pick("", "100Mi", "300Mi"), CPULimit: pick("", "1"), MemoryLimit: pick("", "", "400Mi"),
		}, usage)
		pod.Spec.RestartPolicy = corev1.RestartPolicy(pick("Always", "Always", "OnFailure", "Never"))
		if random.IntN(3) == 0 {
			pod.Spec.Priority = new(int32(random.IntN(3)))
		}
		if random.IntN(3) == 0 {
			pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 5, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
		}
		addContainers(pod, random)
		require.NoError(t, n.Add(pod))
		n.Advance(time.Duration(random.IntN(90_000)) * time.Millisecond)
	}
	for range 6 {
		switch random.IntN(6) {
		case 0:
			_ = n.Delete(fmt.Sprintf("pod-%02d", random.IntN(8))) // may be gone
		case 1:
			require.NoError(t, n.RestartAgent(time.Duration(random.IntN(60))*time.Second))
		case 2:
			n.FillDisk(machine.NodeDisk, int64(random.IntN(19))<<30)
		case 3:
			n.Inject(nodetest.Fault{Op: pick("CreateContainer", "StopContainer", "RunPodSandbox"), Delay: time.Second, Times: 2})
		}
		n.Advance(time.Duration(random.IntN(180_000)) * time.Millisecond)
	}
}

// addContainers adds init containers, sidecars and a failing liveness probe to some pods.
func addContainers(pod *corev1.Pod, random *rand.Rand) {
	add := func(name, usage string, policy *corev1.ContainerRestartPolicy) {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: name, Image: "nodetest", ImagePullPolicy: corev1.PullIfNotPresent, RestartPolicy: policy})
		pod.Annotations[nodetest.AnnotationUsage+"."+name] = usage
	}
	if random.IntN(4) == 0 {
		add("init", "exit=0@2s", nil)
	}
	if random.IntN(4) == 0 {
		add("sidecar", "memory=20Mi stop=1s", new(corev1.ContainerRestartPolicyAlways))
	}
	if random.IntN(4) == 0 {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "second", Image: "nodetest", ImagePullPolicy: corev1.PullIfNotPresent})
		pod.Annotations[nodetest.AnnotationUsage+".second"] = "memory=30Mi exit=0@5m"
	}
	if random.IntN(4) == 0 {
		pod.Spec.Containers[0].LivenessProbe = &corev1.Probe{PeriodSeconds: 10, ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(80)}}}
	}
}

// becomeSick returns the behavior of a container whose liveness probe fails after 100 s.
func becomeSick(pod *corev1.Pod, container string) (nodetest.Behavior, bool) {
	if c := &pod.Spec.Containers[0]; c.Name != container || c.LivenessProbe == nil {
		return nodetest.Behavior{}, false
	}
	return nodetest.Behavior{Probe: func(_ context.Context, age time.Duration, command []string) error {
		if age > 100*time.Second && command[0] == "tcp" {
			return errors.New("connection refused")
		}
		return nil
	}}, true
}

func TestLoopHasTheEventsOfANode(t *testing.T) {
	for seed := range uint64(runs(t)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			o := nodetest.Options{Machine: machine.Spec{CPUs: 2, Memory: 3 << 30, Disk: machine.Disk{Bytes: 20 << 30}}, Seed: seed, Behave: becomeSick}
			var want nodetest.Log
			synctest.Test(t, func(t *testing.T) {
				n := nodetest.New(t, o)
				playRandom(t, n, seed)
				want = n.Log()
			})
			l, err := nodetest.NewLoop(t.Context(), o)
			require.NoError(t, err)
			playRandom(t, l, seed)
			requireSameLog(t, want, l.Log())
		})
	}
}

// requireSameLog fails the test with the first entries of a pod that differ.
func requireSameLog(t *testing.T, want, got nodetest.Log) {
	t.Helper()
	byPod := func(l nodetest.Log) map[string]nodetest.Log {
		m := map[string]nodetest.Log{}
		for _, e := range l {
			m[e.Pod] = append(m[e.Pod], e)
		}
		for _, list := range m { // the goroutines of a node act in any order at one instant
			slices.SortStableFunc(list, func(a, b nodetest.Entry) int {
				return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Reason, b.Reason))
			})
		}
		return m
	}
	node, loop := byPod(want), byPod(got)
	for _, pod := range slices.Sorted(maps.Keys(node)) {
		a, b := node[pod], loop[pod]
		for i := range max(len(a), len(b)) {
			if i >= len(a) || i >= len(b) || !almostEqual(a[i], b[i]) {
				t.Fatalf("entry %d of %q\nnode: %s\nloop: %s", i, pod, a[max(0, min(i-1, len(a))):min(i+3, len(a))], b[max(0, min(i-1, len(b))):min(i+3, len(b))])
			}
		}
	}
	require.Len(t, got, len(want))
}

// almostEqual reports whether two entries differ only in their times, by at most 150 ms or for the node one observation, and in the amounts of
// messages.
func almostEqual(a, b nodetest.Entry) bool {
	late, limit := (a.At - b.At).Abs(), 150*time.Millisecond
	if a.Pod == "" {
		limit = time.Second
	}
	digits := regexp.MustCompile(`\d+(Ki|Mi|Gi|\b)`)
	a.Message, b.Message = digits.ReplaceAllString(a.Message, "N"), digits.ReplaceAllString(b.Message, "N")
	a.At = b.At
	return a == b && late <= limit
}

// A container that crashes each minute starts again within the longest back-off, and its readiness and evictions work on, whatever the clock does.
func TestPodsSurviveAClockThatJumps(t *testing.T) {
	for _, jump := range []time.Duration{-24 * time.Hour, -time.Minute, time.Minute, 24 * time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			l, err := nodetest.NewLoop(t.Context(), nodetest.Options{Machine: machine.Spec{Memory: 4 << 30}})
			require.NoError(t, err)
			ready := nodetest.NewPod("ready", nodetest.Resources{Memory: "100Mi"}, "cpu=0.1")
			ready.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
				InitialDelaySeconds: 5, PeriodSeconds: 5, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}},
			}
			crash := nodetest.NewPod("crash", nodetest.Resources{}, "exit=1@1m")
			crash.Spec.Priority = new(int32(2_000_000_000)) // critical: while it waits for a restart it is not measured, and would be evicted first
			require.NoError(t, l.Add(crash, ready, nodetest.NewPod("leak", nodetest.Resources{}, "memory=ramp(0,8Gi,30m)")))
			l.Advance(2*time.Minute + 5*time.Second) // crash waits for its back-off

			l.JumpClock(jump)
			l.Advance(time.Hour)

			starts := l.Log().Match("default/crash", nodetest.KindEvent, "Started")
			require.Greater(t, len(starts), 8)
			for i := range starts[1:] {
				assert.Less(t, starts[i+1].At-starts[i].At, 6*time.Minute+30*time.Second)
			}
			assert.Equal(t, []string{"default/leak"}, l.Log().Evicted())
			assert.Zero(t, l.Log().NotReady("default/ready", l.Age()))
		})
	}
}
