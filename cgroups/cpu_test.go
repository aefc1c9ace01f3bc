// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups_test

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed81659283/nodeagent/cgroups"
)

func TestCPUSharesOfMillicores(t *testing.T) {
	for _, tc := range []struct {
		milli  int64
		shares uint64
	}{
		{math.MinInt64, 2},
		{-35184372088832000, 2},
		{-1000, 2},
		{0, 2},
		{1, 2},
		{2, 2},
		{3, 3},
		{10, 10},
		{100, 102},
		{250, 256},
		{1000, 1024},
		{255999, 262142},
		{256000, 262144},
		{300000, 262144},
		{math.MaxInt64, 262144},
	} {
		assert.Equal(t, tc.shares, cgroups.CPUShares(tc.milli), tc.milli)
	}
}

func TestSharesToMilliReversesCPUShares(t *testing.T) {
	for shares, milli := range map[uint64]int64{
		0: 0, 1: 0, 2: 2, 3: 3, 102: 100, 1024: 1000, 262144: 256000, 300000: 292969, math.MaxUint64: math.MaxInt64,
	} {
		assert.Equal(t, milli, cgroups.SharesToMilli(shares), shares)
	}
	for milli := int64(2); milli <= 256000; milli++ {
		if back := cgroups.SharesToMilli(cgroups.CPUShares(milli)); back != milli {
			t.Fatalf("%d milli-CPU come back as %d", milli, back)
		}
	}
}

func TestCPUQuotaOfMillicores(t *testing.T) {
	for _, tc := range []struct {
		milli  int64
		period uint64
		quota  int64
	}{
		{0, 100000, 0},
		{1, 100000, 1000},
		{9, 100000, 1000},
		{10, 100000, 1000},
		{11, 100000, 1100},
		{200, 100000, 20000},
		{1500, 100000, 150000},
		{1500, 0, 150000},
		{100, 5000, 1000},
		{200, 5000, 1000},
		{1000, 1000000, 1000000},
		{-5, 100000, 1000},
		{math.MaxInt64, 100000, math.MaxInt64},
		{math.MaxInt64, math.MaxUint64, math.MaxInt64},
		{math.MaxInt64, 1000, math.MaxInt64},
	} {
		assert.Equal(t, tc.quota, cgroups.CPUQuota(tc.milli, tc.period), "%d in %d", tc.milli, tc.period)
	}
}

func TestQuotaToMilli(t *testing.T) {
	for _, tc := range []struct {
		quota  int64
		period uint64
		milli  int64
	}{
		{cgroups.Unlimited, 100000, 0},
		{0, 100000, 0},
		{20000, 100000, 200},
		{20000, 0, 200},
		{1999, 1000000, 1},
		{math.MaxInt64, 1, math.MaxInt64},
	} {
		assert.Equal(t, tc.milli, cgroups.QuotaToMilli(tc.quota, tc.period), "%d in %d", tc.quota, tc.period)
	}
}

func TestSystemdQuotaRoundsUpToPercents(t *testing.T) {
	for _, tc := range []struct {
		quota   int64
		period  uint64
		perSec  uint64
		rounded int64
	}{
		{1000, 100000, 10000, 1000},
		{1100, 100000, 20000, 2000},
		{12345, 100000, 130000, 13000},
		{15000, 100000, 150000, 15000},
		{20000, 100000, 200000, 20000},
		{20000, 0, 200000, 20000},
		{123456, 100000, 1240000, 124000},
		{500000, 900000, 560000, 504000},
		{cgroups.Unlimited, 100000, math.MaxUint64, cgroups.Unlimited},
		{0, 100000, math.MaxUint64, 0},
	} {
		perSec, rounded := cgroups.SystemdQuota(tc.quota, tc.period)
		assert.Equal(t, tc.perSec, perSec, "%d in %d", tc.quota, tc.period)
		assert.Equal(t, tc.rounded, rounded, "%d in %d", tc.quota, tc.period)
	}
}

// FuzzCPU compares each CPU conversion with its formula in big numbers.
func FuzzCPU(f *testing.F) {
	f.Add(int64(1500), uint64(100000))
	f.Add(int64(-1), uint64(0))
	f.Add(int64(math.MaxInt64), uint64(math.MaxUint64))
	f.Add(int64(math.MaxInt64/1024), uint64(1))
	f.Add(int64(-35184372088832000), uint64(2))
	f.Fuzz(func(t *testing.T, n int64, period uint64) {
		shares := mulDiv(big.NewInt(max(n, 0)), 1024, 1000, 2, 262144)
		assert.Equal(t, shares, int64(cgroups.CPUShares(n)), "shares of %d", n)

		by := period
		if by == 0 {
			by = 100000
		}
		if n != 0 {
			quota := mulDiv(big.NewInt(max(n, 0)), by, 1000, 1000, math.MaxInt64)
			assert.Equal(t, quota, cgroups.CPUQuota(n, period), "quota of %d in %d", n, period)
		}
		milli := mulDiv(big.NewInt(max(n, 0)), 1000, by, 0, math.MaxInt64)
		assert.Equal(t, milli, cgroups.QuotaToMilli(n, period), "%d in %d", n, period)

		if period >= 2 {
			up := new(big.Int).Mul(new(big.Int).SetUint64(period), big.NewInt(1000))
			up.Add(up, big.NewInt(1023)).Div(up, big.NewInt(1024))
			assert.Equal(t, clamp(up, 0, math.MaxInt64), cgroups.SharesToMilli(period), "%d shares", period)
		}
		if n >= 1000 && by >= 1000 && by <= 1000000 && n < 1<<44 {
			perSec, rounded := cgroups.SystemdQuota(n, period)
			assert.Zero(t, perSec%10000)
			assert.GreaterOrEqual(t, float64(perSec), float64(n)/float64(by)*1e6-1)
			assert.Less(t, float64(perSec), float64(n)/float64(by)*1e6+10000)
			assert.GreaterOrEqual(t, rounded+1, n)
		}
	})
}

// mulDiv returns a×b/c, limited to a range.
func mulDiv(a *big.Int, b, c uint64, least, most int64) int64 {
	a = new(big.Int).Mul(a, new(big.Int).SetUint64(b))
	return clamp(a.Div(a, new(big.Int).SetUint64(c)), least, most)
}

func clamp(v *big.Int, least, most int64) int64 {
	switch {
	case v.Cmp(big.NewInt(least)) < 0:
		return least
	case v.Cmp(big.NewInt(most)) > 0:
		return most
	}
	return v.Int64()
}
