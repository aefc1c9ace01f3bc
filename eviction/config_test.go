// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/eviction/evictiontest"
)

// texts returns the texts of the thresholds in list.
func texts(list []eviction.Threshold) (out []string) {
	for _, t := range list {
		text := t.String()
		if t.MinReclaim != (eviction.Amount{}) {
			text += " and " + t.MinReclaim.String()
		}
		out = append(out, text)
	}
	return out
}

type entries = map[string]string

func TestParseThresholds(t *testing.T) {
	for name, test := range map[string]struct {
		config eviction.Config
		want   []string
	}{
		"empty map":   {eviction.Config{Hard: entries{}}, nil},
		"allocatable": {eviction.Config{Hard: entries{"memory.available": "100Mi"}, EnforcePods: true}, []string{"memory.available<100Mi", "allocatableMemory.available<100Mi"}},
		"no pods":     {eviction.Config{Hard: entries{"memory.available": "100Mi"}}, []string{"memory.available<100Mi"}},
		"soft threshold has no allocatable copy": {
			eviction.Config{Hard: entries{}, Soft: entries{"memory.available": "1Gi"}, SoftGracePeriod: entries{"memory.available": "30s"}, EnforcePods: true},
			[]string{"memory.available<1Gi for 30s"},
		},
		"grace period of zero makes a soft threshold hard": {
			eviction.Config{Hard: entries{}, Soft: entries{"memory.available": "1Gi"}, SoftGracePeriod: entries{"memory.available": "0s"}, EnforcePods: true},
			[]string{"memory.available<1Gi", "allocatableMemory.available<1Gi"},
		},
		"disabled": {eviction.Config{Hard: entries{"memory.available": "0%", "pid.available": "100%"}, Soft: entries{"nodefs.available": "0%"}}, nil},
		"minimum reclaim": {
			eviction.Config{
				Hard: entries{"memory.available": "1Gi", "nodefs.available": "10%"}, Soft: entries{"memory.available": "2Gi"}, SoftGracePeriod: entries{"memory.available": "2m"},
				MinimumReclaim: entries{"memory.available": "500Mi", "nodefs.available": "150%", "pid.available": "0"}, EnforcePods: true,
			},
			[]string{
				"memory.available<1Gi and 500Mi", "nodefs.available<10% and 150%", "memory.available<2Gi for 2m0s and 500Mi", "allocatableMemory.available<1Gi and 500Mi",
			},
		},
		"merged": {
			eviction.Config{Hard: entries{"memory.available": "200Mi", "imagefs.available": "0%"}, MergeDefaults: true},
			[]string{"memory.available<200Mi", "nodefs.available<10%", "nodefs.inodesFree<5%", "imagefs.inodesFree<5%"},
		},
		"defaults":                          {eviction.Config{}, []string{"memory.available<100Mi", "nodefs.available<10%", "nodefs.inodesFree<5%", "imagefs.available<15%", "imagefs.inodesFree<5%"}},
		"grace periods without a threshold": {eviction.Config{Hard: entries{}, SoftGracePeriod: entries{"memory.available": "1m"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := eviction.ParseThresholds(test.config)
			require.NoError(t, err)
			require.Equal(t, test.want, texts(list))
		})
	}
}

// The error has each mistake with field, signal and value.
func TestParseThresholdsReturnsAllErrors(t *testing.T) {
	_, err := eviction.ParseThresholds(eviction.Config{
		Hard:            entries{"mem.available": "1Gi", "memory.available": "-1Mi", "nodefs.available": "101%"},
		Soft:            entries{"pid.available": "1k", "imagefs.available": "abc%", "nodefs.inodesFree": "5%"},
		SoftGracePeriod: entries{"nodefs.inodesFree": "-30s", "imagefs.available": "soon", "x": "1s"},
		MinimumReclaim:  entries{"memory.available": "0%", "y": "1"},
	})
	for _, text := range []string{
		`evictionHard["mem.available"]: "1Gi" is not a signal such as memory.available`,
		`evictionHard["memory.available"]: "-1Mi": must be positive`,
		`evictionHard["nodefs.available"]: "101%": must be between 0% and 100%`,
		`evictionSoft["imagefs.available"]: "abc%": the percentage is not a number`,
		`evictionSoftGracePeriod["pid.available"]: required for a soft threshold`,
		`evictionSoftGracePeriod["nodefs.inodesFree"]: "-30s": must not be negative`,
		`evictionSoftGracePeriod["imagefs.available"]: "soon": not a duration such as 30s`,
		`evictionSoftGracePeriod["x"]: "1s" is not a signal`,
		`evictionMinimumReclaim["memory.available"]: "0%": must be a percentage above 0%`,
		`evictionMinimumReclaim["y"]: "1" is not a signal`,
	} {
		require.ErrorContains(t, err, text)
	}
}

func TestFindContradictions(t *testing.T) {
	list, err := eviction.ParseThresholds(eviction.Config{
		Hard:            entries{"memory.available": "1Gi", "nodefs.available": "10%", "imagefs.available": "20%", "pid.available": "1k"},
		Soft:            entries{"memory.available": "1Gi", "nodefs.available": "5%", "imagefs.available": "30%", "pid.available": "5%"},
		SoftGracePeriod: entries{"memory.available": "1m", "nodefs.available": "1m", "imagefs.available": "1m", "pid.available": "1m"},
		MinimumReclaim:  entries{"imagefs.available": "80%"},
	})
	require.NoError(t, err)
	found := fmt.Sprint(eviction.FindContradictions(list))
	for _, text := range []string{
		"memory.available<1Gi for 1m0s: the hard threshold memory.available<1Gi is met as soon", "nodefs.available<5% for 1m0s: the hard threshold nodefs.available<10%",
		"imagefs.available<20%: with a minimum reclaim of 80% it is always met again",
	} {
		require.Contains(t, found, text)
	}
	require.Len(t, eviction.FindContradictions(list), 4)
}

func TestLayoutThresholds(t *testing.T) {
	list, err := eviction.ParseThresholds(eviction.Config{
		Hard:            entries{"nodefs.available": "10%", "imagefs.available": "15%", "imagefs.inodesFree": "5%", "containerfs.available": "1%"},
		Soft:            entries{"imagefs.available": "20%"},
		SoftGracePeriod: entries{"imagefs.available": "1m"},
		MinimumReclaim:  entries{"imagefs.available": "1Gi"},
	})
	require.NoError(t, err)
	for layout, want := range map[eviction.Layout][]string{
		eviction.SingleFS: {"containerfs.available<10%"},
		eviction.DedicatedImageFS: {
			"containerfs.available<15% and 1Gi", "containerfs.available<20% for 1m0s and 1Gi", "containerfs.inodesFree<5%",
		},
		eviction.SplitFS: {"containerfs.available<10%"},
	} {
		with, err := layout.Thresholds(list)
		require.ErrorContains(t, err, "containerfs.available<1%: ignored", layout)
		require.Equal(t, want, texts(with)[len(list)-1:], layout)
	}
	_, err = eviction.SingleFS.Thresholds(list[:1])
	require.NoError(t, err)
	require.Equal(t, "single dedicated split Layout(9)", fmt.Sprint(eviction.SingleFS, " ", eviction.DedicatedImageFS, " ", eviction.SplitFS, " ", eviction.Layout(9)))
}

// Of two readings of a signal, the one with less available is used.
func TestDecideUsesLowerOfTwoReadings(t *testing.T) {
	p, err := eviction.NewPolicy(eviction.Rules{NoLocalStorage: true, Thresholds: []eviction.Threshold{{Signal: eviction.PIDAvailable, Value: eviction.Amount{Absolute: 100}}}})
	require.NoError(t, err)
	node, pods := eviction.Reading{Signal: eviction.PIDAvailable, Available: 30000, Capacity: 32768}, eviction.Reading{Signal: eviction.PIDAvailable, Available: 50, Capacity: 1000}
	for _, readings := range [][]eviction.Reading{{node, pods}, {pods, node}} {
		d := p.Decide(eviction.State{}, eviction.Observation{Readings: readings, Measured: true}, time.Unix(0, 0))
		require.Equal(t, []eviction.Condition{eviction.PIDPressure}, d.Conditions)
	}
}

func ExampleNew() {
	node := evictiontest.NewNode(evictiontest.Options{Memory: 1 << 30})
	node.StartPod(evictiontest.Pod{Candidate: eviction.Candidate{UID: "1", Name: "default/web", Memory: 1000 << 20}})

	thresholds, err := eviction.ParseThresholds(eviction.Config{Hard: map[string]string{"memory.available": "100Mi"}})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	evictor, err := eviction.New(node, node, eviction.Options{
		Rules: eviction.Rules{Thresholds: thresholds},
		Hooks: eviction.Hooks{
			Evicting: func(e eviction.Eviction) { fmt.Printf("%s %s %q\n", e.Name, e.Grace, e.Message) },
			Evicted:  func(e eviction.Eviction, err error) { fmt.Println(e.Name, "is gone:", err); cancel() },
		},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(evictor.Run(ctx))
	// Output:
	// default/web 1s "The node was low on resource: memory. Threshold quantity: 100Mi, available: 24Mi. "
	// default/web is gone: <nil>
	// <nil>
}

func ExampleOrderedBy() {
	ranker := eviction.OrderedBy(eviction.ComparePriority, func(a, b *eviction.Candidate) int { return int(b.GracePeriod - a.GracePeriod) })
	for _, c := range ranker.Rank(eviction.MemoryAvailable, []eviction.Candidate{
		{UID: "a", Priority: 5}, {UID: "b"}, {UID: "c", GracePeriod: time.Minute},
	}) {
		fmt.Print(c.UID, " ")
	}
	// Output: c b a
}
