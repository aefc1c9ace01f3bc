// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc_test

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/gc"
)

var epoch = time.Unix(1_000_000, 0)

// randomState returns images of every kind, many of equal age.
func randomState(rnd *rand.Rand, images int) gc.ImageState {
	s := gc.ImageState{Now: epoch, Began: epoch.Add(-time.Duration(rnd.IntN(20)) * time.Minute)}
	ago := func() time.Time { return epoch.Add(time.Duration(1-rnd.IntN(15)) * time.Minute) }
	for i := range images {
		image := gc.Image{
			ID: fmt.Sprint("sha256:", i), Size: rnd.Uint64N(1 << 30), FirstDetected: ago(),
			Used: rnd.IntN(5) == 0, Pinned: rnd.IntN(8) == 0, NamedByPod: rnd.IntN(8) == 0, Imported: rnd.IntN(8) == 0,
		}
		if rnd.IntN(3) > 0 {
			image.LastUsed = ago()
		}
		if rnd.IntN(50) == 0 {
			image.ID = ""
		}
		s.Images = append(s.Images, image)
	}
	return s
}

func randomPolicy(rnd *rand.Rand) gc.ImagePolicy {
	p := gc.DefaultImagePolicy()
	p.MinAge = time.Duration(rnd.IntN(4)) * time.Minute
	if rnd.IntN(2) == 0 {
		p.MaxAge = p.MinAge + time.Duration(1+rnd.IntN(6))*time.Minute
	}
	p.Kubelet = rnd.IntN(2) == 0
	return p
}

// roundCount returns the number of random nodes to check, which is larger with NODEAGENT_SOAK.
func roundCount() int {
	if os.Getenv("NODEAGENT_SOAK") != "" {
		return 100_000
	}
	return 15_000
}

// TestPlanImages checks the plans for random nodes against rules of one sentence each.
func TestPlanImages(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	counts := map[string]int{}
	for range roundCount() {
		p, s := randomPolicy(rnd), randomState(rnd, rnd.IntN(12))
		plan := gc.PlanImages(p, s)
		again := s
		again.Images = slices.Clone(s.Images)
		rnd.Shuffle(len(again.Images), func(i, j int) { again.Images[i], again.Images[j] = again.Images[j], again.Images[i] })
		other := gc.PlanImages(p, again)
		require.Equal(t, plan.Old, other.Old, "the plan does not depend on the order of images")
		require.Equal(t, plan.Unused, other.Unused)
		require.Len(t, s.Images, len(plan.Old)+len(plan.Unused)+len(plan.Kept), "each image occurs once in the plan")
		for i, list := range [][]gc.Image{plan.Old, plan.Unused} {
			require.True(t, slices.IsSortedFunc(list, func(a, b gc.Image) int {
				return cmp.Or(a.LastUsed.Compare(b.LastUsed), a.FirstDetected.Compare(b.FirstDetected))
			}))
			for _, image := range list {
				requireRemovable(t, p, s, image, i == 0)
			}
			counts[fmt.Sprint("list ", i)] += len(list)
		}
		for _, k := range plan.Kept {
			counts[string(k.Reason)]++
		}
	}
	for _, what := range []string{"list 0", "list 1", string(gc.KeepUsed), string(gc.KeepYoung), string(gc.KeepInvalid), string(gc.KeepImported)} {
		require.Greater(t, counts[what], 200, what)
	}
}

// requireRemovable fails the test if the policy forbids the removal of image i. byAge is true if it is removed for its age.
func requireRemovable(t *testing.T, p gc.ImagePolicy, s gc.ImageState, i gc.Image, byAge bool) {
	require.NotEmpty(t, i.ID)
	require.False(t, i.Used || i.Pinned || i.NamedByPod, "%+v", i)
	require.False(t, i.Imported && !p.Kubelet, "%+v", i)
	if !p.Kubelet || !byAge {
		require.GreaterOrEqual(t, s.Now.Sub(i.FirstDetected), p.MinAge, "%+v is younger than the minimum age", i)
	}
	if byAge {
		require.NotZero(t, p.MaxAge)
		require.Greater(t, s.Now.Sub(i.LastUsed), p.MaxAge, "%+v", i)
	}
}

// The excess equals that of the kubelet's formula, computed with big integers.
func TestExcessEqualsKubeletFormula(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	over := 0
	for range roundCount() {
		d := gc.Disk{Capacity: rnd.Uint64() >> rnd.IntN(64), Available: rnd.Uint64() >> rnd.IntN(64)}
		p := gc.ImagePolicy{HighThresholdPercent: rnd.IntN(101)}
		p.LowThresholdPercent = rnd.IntN(p.HighThresholdPercent + 1)
		want, is, err := p.Excess(d)
		if d.Capacity == 0 {
			require.ErrorContains(t, err, "a capacity of 0 bytes")
			continue
		}
		require.NoError(t, err)
		capacity, available := new(big.Int).SetUint64(d.Capacity), new(big.Int).SetUint64(min(d.Available, d.Capacity))
		percent := new(big.Int).Mul(available, big.NewInt(100))
		used := 100 - int(percent.Quo(percent, capacity).Int64())
		require.Equal(t, used, d.Used())
		require.Equal(t, used >= p.HighThresholdPercent, is)
		if is {
			over++
			target := new(big.Int).Mul(capacity, big.NewInt(int64(100-p.LowThresholdPercent)))
			target.Quo(target, big.NewInt(100)).Sub(target, available)
			if target.Sign() < 0 {
				target.SetInt64(0)
			}
			require.Equal(t, target.Uint64(), want, "%+v %+v", d, p)
		}
	}
	require.Greater(t, over, 1000)
}

func TestCountToFree(t *testing.T) {
	plan := gc.ImagePlan{Unused: []gc.Image{{Size: 10}, {Size: 20}, {Size: math.MaxUint64}}}
	for want, first := range map[uint64]int{0: 0, 1: 1, 10: 1, 11: 2, 31: 3, math.MaxUint64: 3} {
		images, bytes := plan.CountToFree(want)
		require.Equal(t, first, images, want)
		require.GreaterOrEqual(t, bytes, want)
	}
}

// The target is 5 ms for a plan of 10,000 images.
func BenchmarkPlanImages(b *testing.B) {
	s := randomState(rand.New(rand.NewPCG(5, 6)), 10_000)
	p := gc.ImagePolicy{HighThresholdPercent: 85, LowThresholdPercent: 80, MinAge: time.Minute, MaxAge: 10 * time.Minute}
	b.ReportAllocs()
	for b.Loop() {
		gc.PlanImages(p, s)
	}
}
