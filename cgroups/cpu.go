// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"math"
	"math/bits"
)

// Bounds of the kernel and of the kubelet (pkg/kubelet/cm/helpers_linux.go).
const (
	MinShares = 2      // least that cpu.shares holds
	MaxShares = 262144 // most that cpu.shares holds

	DefaultPeriod = 100_000   // microseconds, of the kernel and of the kubelet's cpuCFSQuotaPeriod
	MinPeriod     = 1_000     // microseconds
	MaxPeriod     = 1_000_000 // microseconds
	MinQuota      = 1_000     // microseconds in a period: the kernel takes no less

	sharesPerCPU = 1024
	milliPerCPU  = 1000
)

// CPUShares returns the cpu.shares of a CPU request in millicores: milli×1024/1000, rounded down and held
// between [MinShares] and [MaxShares]. No request is 2 shares, not the kernel's default of 1024 (MilliCPUToShares in
// pkg/kubelet/cm/helpers_linux.go).
//
// Differs from the kubelet: what is too large to multiply is MaxShares; there it overflows.
func CPUShares(milli int64) uint64 {
	const most = MaxShares / sharesPerCPU * milliPerCPU
	return max(uint64(min(max(milli, 0), most))*sharesPerCPU/milliPerCPU, MinShares)
}

// SharesToMilli returns the CPU request that shares stand for: shares×1000/1024, rounded up, so that
// SharesToMilli(CPUShares(m)) is m for every m from 2 to 256000. Fewer than [MinShares] are no request
// (SharesToMilliCPU in pkg/kubelet/cm/helpers_linux.go).
func SharesToMilli(shares uint64) int64 {
	if shares < MinShares {
		return 0
	}
	whole, rest := shares/sharesPerCPU, shares%sharesPerCPU
	return saturate(whole*milliPerCPU + (rest*milliPerCPU+sharesPerCPU-1)/sharesPerCPU)
}

// CPUQuota returns how many microseconds of CPU time a limit in millicores allows in each period of so many
// microseconds: milli×period/1000, rounded down, and at least [MinQuota]. No limit is 0, which sets no quota. A period
// of zero is [DefaultPeriod] (MilliCPUToQuota in pkg/kubelet/cm/helpers_linux.go).
//
// Differs from the kubelet: what is too large to multiply is the largest int64; there it overflows.
func CPUQuota(milli int64, period uint64) int64 {
	if milli == 0 {
		return 0
	}
	if milli < 0 {
		return MinQuota
	}
	return max(mulDiv(uint64(milli), orDefault(period), milliPerCPU), MinQuota)
}

// QuotaToMilli returns the CPU limit that a quota stands for: quota×1000/period, rounded down. [Unlimited] is no
// limit, 0. A period of zero is [DefaultPeriod] (QuotaToMilliCPU in pkg/kubelet/cm/helpers_linux.go).
func QuotaToMilli(quota int64, period uint64) int64 {
	if quota <= 0 {
		return 0
	}
	return mulDiv(uint64(quota), milliPerCPU, orDefault(period))
}

// SystemdQuota returns the quota in the unit of systemd's property CPUQuotaPerSecUSec, microseconds of CPU time in
// each second, and the quota that systemd makes of it. Systemd counts in whole percents of a CPU, so perSec is rounded
// up to a multiple of 10000 and the quota grows with it: 1100 in a period of 100000 becomes 2000. The cgroup must be
// written with the grown one, or its children ask for more than it has. No quota is the largest uint64, systemd's
// infinity (opencontainers/cgroups, systemd/common.go).
func SystemdQuota(quota int64, period uint64) (perSec uint64, rounded int64) {
	const second, percent = 1_000_000, 10_000
	if quota <= 0 {
		return math.MaxUint64, quota
	}
	period = orDefault(period)
	perSec = uint64(mulDiv(uint64(quota), second, period))
	if rest := perSec % percent; rest != 0 {
		perSec += percent - rest
		quota = mulDiv(perSec, period, second)
	}
	return perSec, quota
}

// orDefault returns the period, or the default one for zero.
func orDefault(period uint64) uint64 {
	if period == 0 {
		return DefaultPeriod
	}
	return period
}

// mulDiv returns a×b/c, or the largest int64 where it is larger.
func mulDiv(a, b, c uint64) int64 {
	high, low := bits.Mul64(a, b)
	if high >= c {
		return math.MaxInt64
	}
	quotient, _ := bits.Div64(high, low, c)
	return saturate(quotient)
}

// saturate returns v, or the largest int64 where v is larger.
func saturate(v uint64) int64 { return int64(min(v, math.MaxInt64)) }
