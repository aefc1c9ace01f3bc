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

	"github.com/seed81659283/nodeagent/nodetest"
	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// A study plays the same script under two eviction thresholds, and compares the lowest memory that was available.
func ExamplePlay() {
	const script = `
machine memory=4Gi
pod leak uses memory=ramp(0,8Gi,10m)
after 10m
`
	for _, threshold := range []string{"100Mi", "1Gi"} {
		lowest := int64(4 << 30)
		log, err := nodetest.Play(context.Background(), script, nodetest.PlayOptions{
			Adjust: func(o *nodetest.Options) {
				o.Config.Kubelet.EvictionHard = map[string]string{"memory.available": threshold}
			},
			Observe: func(n nodetest.ObservedNode) error {
				lowest = min(lowest, n.Sample().MemoryAvailable)
				return nil
			},
		})
		fmt.Println(threshold, log.Evicted(), "lowest", lowest>>20, "MiB", err)
	}
	// Output:
	// 100Mi [default/leak] lowest 86 MiB <nil>
	// 1Gi [default/leak] lowest 1015 MiB <nil>
}

func TestPlayObservesTheNodeAfterEachInterval(t *testing.T) {
	var ages []time.Duration
	_, err := nodetest.Play(t.Context(), "pod web uses cpu=1\nafter 25s\nafter 10s\n", nodetest.PlayOptions{
		Interval: 10 * time.Second,
		Observe: func(n nodetest.ObservedNode) error {
			ages = append(ages, n.Sample().At.Truncate(time.Second))
			pod, found := n.Pod("web")
			require.True(t, found)
			assert.Equal(t, n.Sample().Pods[0].Phase, pod.Status.Phase)
			assert.InDelta(t, n.Machine().Elapsed().Seconds(), n.Sample().At.Seconds(), 0.001)
			return nil
		},
	})
	require.NoError(t, err)
	assert.Equal(t, []time.Duration{10 * time.Second, 20 * time.Second, 25 * time.Second, 35 * time.Second}, ages)
}

func TestPlayCreatesAPodForEachNumberOfARange(t *testing.T) {
	var names []string
	_, err := nodetest.Play(t.Context(), "pod web-{9..11}a uses cpu=0.1\nafter 1s", nodetest.PlayOptions{Observe: func(n nodetest.ObservedNode) error {
		for _, p := range n.Sample().Pods {
			names = append(names, p.Name)
		}
		return nil
	}})
	require.NoError(t, err)
	assert.Equal(t, []string{"default/web-10a", "default/web-11a", "default/web-9a"}, names)
}

func TestPlayEndsAtTheFirstError(t *testing.T) {
	stopped := errors.New("stopped")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name   string
		script string
		play   nodetest.PlayOptions
		want   string
	}{
		{"unknown command", "# comment\n\nfly\nafter 1s", nodetest.PlayOptions{}, `line 3: no command "fly"`},
		{"invalid quantity", "pod web memory=much", nodetest.PlayOptions{}, `line 1: pod web: memory: "much" is no quantity`},
		{"invalid usage", "pod web uses cpu=sin(1)", nodetest.PlayOptions{}, `line 1: pod web: field "cpu=sin(1)": no function "sin"`},
		{"range with the larger number first", "pod web-{3..1}", nodetest.PlayOptions{}, "line 1: pod web-{3..1}: a range of -1 numbers, not between 1 and 1000"},
		{"range that is too long", "pod web-{1..1001}", nodetest.PlayOptions{}, "line 1: pod web-{1..1001}: a range of 1001 numbers"},
		{"pod without a name", "pod", nodetest.PlayOptions{}, "line 1: pod NAME"},
		{"invalid duration", "after soon", nodetest.PlayOptions{}, `line 1: "soon" is no duration`},
		{"pod with the name of another", "pod web\npod web", nodetest.PlayOptions{}, "line 2: pod default/web: the node has a pod with this name or UID"},
		{"invalid option", "after 1s", nodetest.PlayOptions{Adjust: func(o *nodetest.Options) { o.Machine.CPUs = -1 }}, "line 1: machine.Spec.CPUs -1: not between 0 and"},
		{"error of the observer", "after 1s\nafter 1s", nodetest.PlayOptions{Observe: func(nodetest.ObservedNode) error { return stopped }}, "line 1: stopped"},
		{"negative interval", "after 1s", nodetest.PlayOptions{Interval: -1}, "nodetest.Play: PlayOptions.Interval -1ns: negative"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := nodetest.Play(t.Context(), c.script, c.play)
			assert.ErrorContains(t, err, c.want)
		})
	}
	_, err := nodetest.Play(ended, "after 1s", nodetest.PlayOptions{})
	assert.ErrorIs(t, err, context.Canceled)
}

func TestSampleOfALoopEqualsThatOfANode(t *testing.T) {
	add := func(n interface {
		Add(pods ...*corev1.Pod) error
		Delete(name string) error
		Advance(d time.Duration)
	},
	) {
		require.NoError(t, n.Add(
			nodetest.NewPod("web", nodetest.Resources{CPU: "1", CPULimit: "1", Memory: "1Gi", MemoryLimit: "1Gi"}, "cpu=2 memory=500Mi logs=5Mi"),
			nodetest.NewPod("leak", nodetest.Resources{}, "cpu=4 memory=ramp(0,4Gi,1m)"),
			nodetest.NewPod("short", nodetest.Resources{}, "memory=10Mi"),
		))
		n.Advance(time.Minute)
		require.NoError(t, n.Delete("short"))
		n.Advance(time.Minute)
	}
	o := nodetest.Options{Machine: machine.Spec{CPUs: 2, Memory: 2 << 30}}
	var want nodetest.Sample
	synctest.Test(t, func(t *testing.T) {
		n := nodetest.New(t, o)
		add(n)
		want = n.Sample()
	})
	l, err := nodetest.NewLoop(t.Context(), o)
	require.NoError(t, err)
	add(l)

	got := l.Sample()

	require.Len(t, want.Pods, 2)
	for i := range got.Pods { // steps of other lengths round to other nanoseconds
		assert.InDelta(t, want.Pods[i].Usage.Throttled, got.Pods[i].Usage.Throttled, float64(time.Microsecond))
		got.Pods[i].Usage.Throttled = want.Pods[i].Usage.Throttled
	}
	assert.Equal(t, want, got)
}
