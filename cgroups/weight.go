// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"math"
	"sort"
)

// Bounds of cpu.weight in cgroup v2.
const (
	MinWeight = 1
	MaxWeight = 10000
)

// WeightFormula converts cpu.shares of cgroup v1 (2 to 262144, default 1024) to cpu.weight of cgroup v2 (1 to 10000, default
// 100). All cgroups of a tree must use the same formula. Under WeightLinear, a pod with a request of 1 CPU weighs only 39, while
// its sibling without a request weighs 100 (kubernetes/kubernetes#131216).
type WeightFormula uint8

const (
	// WeightLogQuadratic is ⌈10^((L²+125L)/612 − 7/34)⌉ with L = log₂(shares). It maps minimum, default and maximum to
	// each other. Current runtimes use it: runc since 1.3.2, crun since 1.23.
	WeightLogQuadratic WeightFormula = iota
	// WeightLinear is 1 + (shares−2)×9999/262142, rounded down: 39 for the default of 1024 shares. The kubelet 1.37 uses it
	// for pods (getCPUWeight in pkg/kubelet/cm/cgroup_manager_linux.go), and older runtimes use it for containers (KEP-2254).
	WeightLinear
)

// WeightFromShares converts cpu.shares to cpu.weight. Zero stays zero, which leaves the weight of a cgroup unchanged. Shares
// below [MinShares] count as MinShares, and shares above [MaxShares] as MaxShares.
func WeightFromShares(shares uint64, formula WeightFormula) uint64 {
	switch {
	case shares == 0:
		return 0
	case shares <= MinShares:
		return MinWeight
	case shares >= MaxShares:
		return MaxWeight
	case formula == WeightLinear:
		return MinWeight + (shares-MinShares)*(MaxWeight-MinWeight)/(MaxShares-MinShares)
	}
	l := math.Log2(float64(shares))
	return uint64(math.Ceil(math.Pow(10, (l*l+125*l)/612.0-7.0/34.0)))
}

// SharesFromWeight converts cpu.weight to cpu.shares. Zero stays zero. A weight above the range counts as the maximum.
//
// It does not exactly reverse [WeightFromShares], because many shares have the same weight. For [WeightLogQuadratic] it
// returns the most shares with this weight, for example 1024 for 100. For [WeightLinear] it returns
// (weight−1)×262142/9999+2, rounded down, as the kubelet does; the weight of these shares may be one less. Source:
// cpuWeightToCPUShares in pkg/kubelet/cm/cgroup_v2_manager_linux.go.
func SharesFromWeight(weight uint64, formula WeightFormula) uint64 {
	switch {
	case weight == 0:
		return 0
	case weight >= MaxWeight:
		return MaxShares
	case formula == WeightLinear:
		return (weight-MinWeight)*(MaxShares-MinShares)/(MaxWeight-MinWeight) + MinShares
	}
	// The formula is monotonic: search the first shares with a greater weight.
	beyond := sort.Search(MaxShares, func(shares int) bool {
		return WeightFromShares(uint64(shares), formula) > weight
	})
	return uint64(beyond - 1)
}

// RoundTripShares converts shares to cpu.weight and back, which loses precision. On cgroup v2, [Reader].Limits returns this
// value after Apply has written the shares. Callers compare with it to check whether the shares are in force. Source:
// CPUSharesEqualAfterV2RoundTrip in pkg/kubelet/cm/helpers_linux.go.
func RoundTripShares(shares uint64, formula WeightFormula) uint64 {
	return SharesFromWeight(WeightFromShares(shares, formula), formula)
}
