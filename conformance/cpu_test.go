// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"math"
	"math/big"
	"testing"

	libcontainercgroups "github.com/opencontainers/cgroups"
	"k8s.io/kubernetes/pkg/kubelet/cm"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/conformance"
)

func TestCPUShares(t *testing.T)     { run(t, cpuShares) }
func FuzzCPUShares(f *testing.F)     { fuzz(f, cpuShares) }
func TestCPUQuota(t *testing.T)      { run(t, cpuQuota) }
func FuzzCPUQuota(f *testing.F)      { fuzz(f, cpuQuota) }
func TestSharesToMilli(t *testing.T) { run(t, sharesToMilli) }
func FuzzSharesToMilli(f *testing.F) { fuzz(f, sharesToMilli) }
func TestQuotaToMilli(t *testing.T)  { run(t, quotaToMilli) }
func FuzzQuotaToMilli(f *testing.F)  { fuzz(f, quotaToMilli) }
func TestWeights(t *testing.T)       { run(t, weights) }
func FuzzWeights(f *testing.F)       { fuzz(f, weights) }
func TestReadBack(t *testing.T)      { run(t, readBack) }
func FuzzReadBack(f *testing.F)      { fuzz(f, readBack) }

var cpuShares = conformance.Comparison[int64, uint64]{
	Make:    (*conformance.Choices).Int64,
	Kubelet: cm.MilliCPUToShares,
	Ours:    cgroups.CPUShares,
	Exceptions: []conformance.Exception[int64, uint64]{{
		Name:   "overflow",
		Reason: "CPUs beyond an int64 of shares have the maximum shares; the kubelet's product wraps around",
		When:   func(milli int64) bool { return overflows(milli, cm.SharesPerCPU) },
		Want: func(milli int64, _ uint64) uint64 {
			if milli < 0 {
				return cm.MinShares
			}
			return cm.MaxShares
		},
	}},
}

type quotaInput struct{ Value, Period int64 }

// period returns a valid CFS quota period of the kubelet's configuration, from 1 ms to 1 s.
func period(c *conformance.Choices) int64 {
	return conformance.Pick[int64](c, 100_000, 1000, 5000, 10_000, 50_000, 1_000_000, 123_456)
}

func makeQuota(c *conformance.Choices) quotaInput { return quotaInput{c.Int64(), period(c)} }

var cpuQuota = conformance.Comparison[quotaInput, int64]{
	Make:    makeQuota,
	Kubelet: func(in quotaInput) int64 { return cm.MilliCPUToQuota(in.Value, in.Period) },
	Ours:    func(in quotaInput) int64 { return cgroups.CPUQuota(in.Value, uint64(in.Period)) },
	Exceptions: []conformance.Exception[quotaInput, int64]{{
		Name:   "overflow",
		Reason: "CPUs beyond an int64 of microseconds have the largest quota; the kubelet's product wraps around",
		When:   func(in quotaInput) bool { return overflows(in.Value, in.Period) },
		Want: func(in quotaInput, _ int64) int64 {
			if in.Value < 0 {
				return cm.MinQuotaPeriod
			}
			return scaled(in.Value, in.Period, cm.MilliCPUToCPU)
		},
	}},
}

var sharesToMilli = conformance.Comparison[uint64, int64]{
	Make:    func(c *conformance.Choices) uint64 { return c.Uint64() },
	Kubelet: func(shares uint64) int64 { return cm.SharesToMilliCPU(int64(shares)) },
	Ours:    cgroups.SharesToMilli,
	Exceptions: []conformance.Exception[uint64, int64]{{
		Name:   "precision",
		Reason: "the kubelet divides a float64, which is inexact above 2^53, after a product that can wrap around",
		When:   func(shares uint64) bool { return shares > 1<<53/cm.MilliCPUToCPU },
		Want: func(shares uint64, _ int64) int64 {
			product := new(big.Int).Mul(new(big.Int).SetUint64(shares), big.NewInt(cm.MilliCPUToCPU))
			product.Add(product, big.NewInt(cm.SharesPerCPU-1))
			if product.Quo(product, big.NewInt(cm.SharesPerCPU)); product.IsInt64() {
				return product.Int64()
			}
			return math.MaxInt64
		},
	}},
}

var quotaToMilli = conformance.Comparison[quotaInput, int64]{
	Make:    makeQuota,
	Kubelet: func(in quotaInput) int64 { return cm.QuotaToMilliCPU(in.Value, in.Period) },
	Ours:    func(in quotaInput) int64 { return cgroups.QuotaToMilli(in.Value, uint64(in.Period)) },
	Exceptions: []conformance.Exception[quotaInput, int64]{{
		Name:   "overflow",
		Reason: "a quota beyond an int64 of millicores is the largest number; the kubelet's product wraps around",
		When:   func(in quotaInput) bool { return overflows(in.Value, cm.MilliCPUToCPU) },
		Want:   func(in quotaInput, _ int64) int64 { return scaled(max(in.Value, 0), cm.MilliCPUToCPU, in.Period) },
	}, {
		Name:   "negative",
		Reason: "every negative quota means no limit; the kubelet accepts only -1 and computes a negative limit for all others",
		When:   func(in quotaInput) bool { return in.Value < 0 },
		Want:   func(quotaInput, int64) int64 { return 0 },
	}},
}

type weightInput struct{ Shares, Weight uint64 }

// weightAnswer has the weight for the shares by the formulas of the kubelet and of runtimes, and the shares for the weight
// by that of the kubelet.
type weightAnswer struct{ Linear, Quadratic, Shares uint64 }

var weights = conformance.Comparison[weightInput, weightAnswer]{
	Make: func(c *conformance.Choices) weightInput {
		return weightInput{c.Uint64() % (cm.MaxShares + 16), c.Uint64() % (cgroups.MaxWeight + 16)}
	},
	Kubelet: func(in weightInput) weightAnswer {
		return weightAnswer{
			cm.ConformanceWeight(in.Shares), libcontainercgroups.ConvertCPUSharesToCgroupV2Value(in.Shares),
			cm.ConformanceShares(in.Weight),
		}
	},
	Ours: func(in weightInput) weightAnswer {
		return weightAnswer{
			cgroups.WeightFromShares(in.Shares, cgroups.WeightLinear), cgroups.WeightFromShares(in.Shares, cgroups.WeightLogQuadratic),
			cgroups.SharesFromWeight(in.Weight, cgroups.WeightLinear),
		}
	},
	Exceptions: []conformance.Exception[weightInput, weightAnswer]{{
		Name:   "too little",
		Reason: "zero shares yield weight zero and vice versa, and 1 share yields the minimum weight; the kubelet's unsigned difference wraps around",
		When:   func(in weightInput) bool { return in.Shares < cm.MinShares || in.Weight == 0 },
		Want: func(in weightInput, a weightAnswer) weightAnswer {
			if in.Shares < cm.MinShares {
				a.Linear = in.Shares
			}
			if in.Weight == 0 {
				a.Shares = 0
			}
			return a
		},
	}, {
		Name:   "too much",
		Reason: "a weight above 10000 counts as 10000; the kubelet computes more than the maximum shares",
		When:   func(in weightInput) bool { return in.Weight > cgroups.MaxWeight },
		Want: func(_ weightInput, a weightAnswer) weightAnswer {
			a.Shares = cm.MaxShares
			return a
		},
	}},
}

type readBackInput struct{ Allocated, Read uint64 }

var readBack = conformance.Comparison[readBackInput, bool]{
	Make: func(c *conformance.Choices) readBackInput {
		in := readBackInput{Allocated: 2 + c.Uint64()%(cm.MaxShares-1)}
		in.Read = conformance.Pick(c, cm.ConformanceShares(cm.ConformanceWeight(in.Allocated)), in.Allocated, in.Allocated+1)
		return in
	},
	Kubelet: func(in readBackInput) bool { return cm.CPUSharesEqualAfterV2RoundTrip(in.Allocated, in.Read) },
	Ours: func(in readBackInput) bool {
		return cgroups.RoundTripShares(in.Allocated, cgroups.WeightLinear) == in.Read
	},
}

// scaled returns a×b/c in full precision, or the largest int64.
func scaled(a, b, c int64) int64 {
	product := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
	if product.Quo(product, big.NewInt(c)); product.IsInt64() {
		return product.Int64()
	}
	return math.MaxInt64
}

// overflows reports whether a product overflows an int64.
func overflows(a, b int64) bool {
	return a > math.MaxInt64/b || a < math.MinInt64/b
}
