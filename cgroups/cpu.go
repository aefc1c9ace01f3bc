// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"math"
	"math/bits"
)

// Ranges of cpu.shares, CFS periods and quotas in the kernel and the kubelet (pkg/kubelet/cm/helpers_linux.go).
const (
	MinShares = 2      // minimum of cpu.shares
	MaxShares = 262144 // maximum of cpu.shares

	DefaultPeriod = 100_000   // microseconds; default of the kernel and of the kubelet's cpuCFSQuotaPeriod
	MinPeriod     = 1_000     // microseconds
	MaxPeriod     = 1_000_000 // microseconds
	MinQuota      = 1_000     // microseconds per period; the kernel rejects less

	sharesPerCPU = 1024
	milliPerCPU  = 1000
)

// CPUShares converts a CPU request in millicores to cpu.shares, from [MinShares] to [MaxShares]. A request of zero gives 2,
// not the kernel's default of 1024. Source: MilliCPUToShares in pkg/kubelet/cm/helpers_linux.go.
//
// Differs from the kubelet: a huge request gives MaxShares; the kubelet's product overflows.
func CPUShares(milli int64) uint64 {
	const most = MaxShares / sharesPerCPU * milliPerCPU
	return max(uint64(min(max(milli, 0), most))*sharesPerCPU/milliPerCPU, MinShares)
}

// SharesToMilli converts cpu.shares to a CPU request in millicores, which is shares×1000/1024, rounded up. It reverses
// [CPUShares] for requests from 2 to 256000. Shares below [MinShares] give 0, which means no request. Source:
// SharesToMilliCPU in pkg/kubelet/cm/helpers_linux.go.
func SharesToMilli(shares uint64) int64 {
	if shares < MinShares {
		return 0
	}
	whole, rest := shares/sharesPerCPU, shares%sharesPerCPU
	return saturateInt64(whole*milliPerCPU + (rest*milliPerCPU+sharesPerCPU-1)/sharesPerCPU)
}

// CPUQuota converts a CPU limit in millicores to a CFS quota in microseconds, at least [MinQuota]. Zero gives 0, no quota. A
// period of zero means [DefaultPeriod]. Source: MilliCPUToQuota in pkg/kubelet/cm/helpers_linux.go.
//
// Differs from the kubelet: a huge limit gives the largest int64; the kubelet's product overflows.
func CPUQuota(milli int64, period uint64) int64 {
	if milli == 0 {
		return 0
	}
	if milli < 0 {
		return MinQuota
	}
	return max(mulDiv(uint64(milli), periodOrDefault(period), milliPerCPU), MinQuota)
}

// QuotaToMilli converts a CFS quota to a CPU limit in millicores, which is quota×1000/period, rounded down. [Unlimited]
// gives 0, which means no limit. A period of zero means [DefaultPeriod]. Source: QuotaToMilliCPU in
// pkg/kubelet/cm/helpers_linux.go.
func QuotaToMilli(quota int64, period uint64) int64 {
	if quota <= 0 {
		return 0
	}
	return mulDiv(uint64(quota), milliPerCPU, periodOrDefault(period))
}

// SystemdQuota converts a CFS quota to systemd's property CPUQuotaPerSecUSec, which is microseconds of CPU time per second.
// The result perSec is rounded up to a multiple of 10000, because systemd counts whole percents of a CPU. The result rounded
// is the quota per period that follows: a quota of 1100 in a period of 100000 becomes 2000.
//
// The caller must write the rounded quota to the cgroup file. Otherwise the quotas of its children could exceed its own.
// Without a quota, perSec is the largest uint64, systemd's infinity. Source: systemd/common.go in opencontainers/cgroups.
func SystemdQuota(quota int64, period uint64) (perSec uint64, rounded int64) {
	const second, percent = 1_000_000, 10_000
	if quota <= 0 {
		return math.MaxUint64, quota
	}
	period = periodOrDefault(period)
	perSec = uint64(mulDiv(uint64(quota), second, period))
	if rest := perSec % percent; rest != 0 {
		perSec += percent - rest
		quota = mulDiv(perSec, period, second)
	}
	return perSec, quota
}

// periodOrDefault returns period, or DefaultPeriod for zero.
func periodOrDefault(period uint64) uint64 {
	if period == 0 {
		return DefaultPeriod
	}
	return period
}

// mulDiv returns a×b/c, at most the largest int64.
func mulDiv(a, b, c uint64) int64 {
	high, low := bits.Mul64(a, b)
	if high >= c {
		return math.MaxInt64
	}
	quotient, _ := bits.Div64(high, low, c)
	return saturateInt64(quotient)
}

// saturateInt64 returns v, at most the largest int64.
func saturateInt64(v uint64) int64 { return int64(min(v, math.MaxInt64)) }
