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

// WeightFormula turns the cpu.shares of cgroup v1, 2 to 262144 with a default of 1024, into the cpu.weight of cgroup
// v2, 1 to 10000 with a default of 100. A tree is fair only where all of it is written by one formula: under the linear
// one a pod of 1 CPU weighs 39 while a runtime gives 100 to its container and 100 to any neighbour that asks for nothing
// (kubernetes/kubernetes#131216).
type WeightFormula uint8

const (
	// WeightLogQuadratic is ⌈10^((L²+125L)/612 − 7/34)⌉ with L = log₂(shares). It maps least to least, default to
	// default and most to most, and is what runtimes of today use: runc since 1.3.2, crun since 1.23.
	WeightLogQuadratic WeightFormula = iota
	// WeightLinear is 1 + (shares−2)×9999/262142, rounded down. It gives 39 to the default of 1024 shares. The kubelet
	// of 1.37 writes pods with it (getCPUWeight in pkg/kubelet/cm/cgroup_manager_linux.go), and older runtimes their
	// containers (KEP-2254).
	WeightLinear
)

// WeightFromShares returns the cpu.weight of so many cpu.shares. Zero, which leaves a cgroup as it is, stays zero;
// what is below or above the range of shares is taken for its end.
func WeightFromShares(shares uint64, f WeightFormula) uint64 {
	switch {
	case shares == 0:
		return 0
	case shares <= MinShares:
		return MinWeight
	case shares >= MaxShares:
		return MaxWeight
	case f == WeightLinear:
		return MinWeight + (shares-MinShares)*(MaxWeight-MinWeight)/(MaxShares-MinShares)
	}
	l := math.Log2(float64(shares))
	return uint64(math.Ceil(math.Pow(10, (l*l+125*l)/612.0-7.0/34.0)))
}

// SharesFromWeight returns cpu.shares for a cpu.weight. Zero stays zero; what is above the range is taken for its end.
//
// Many shares have one weight, so it is not the way back. For [WeightLogQuadratic] it is the most shares that have this
// weight, hence 1024 for 100. For [WeightLinear] it is (weight−1)×262142/9999+2, rounded down, as in the kubelet
// (cpuWeightToCPUShares in pkg/kubelet/cm/cgroup_v2_manager_linux.go), whose weight may be one less.
func SharesFromWeight(weight uint64, f WeightFormula) uint64 {
	switch {
	case weight == 0:
		return 0
	case weight >= MaxWeight:
		return MaxShares
	case f == WeightLinear:
		return (weight-MinWeight)*(MaxShares-MinShares)/(MaxWeight-MinWeight) + MinShares
	}
	// The formula never falls, so the first shares that weigh more end those that weigh as much.
	beyond := sort.Search(MaxShares, func(shares int) bool {
		return WeightFromShares(uint64(shares), f) > weight
	})
	return uint64(beyond - 1)
}

// RoundTripShares returns what remains of cpu.shares that a cgroup of v2 has held as a weight. It is what
// [Reader].Limits tells after an Apply of shares, and so what to compare with it to learn whether they are in force
// (CPUSharesEqualAfterV2RoundTrip in pkg/kubelet/cm/helpers_linux.go).
func RoundTripShares(shares uint64, f WeightFormula) uint64 {
	return SharesFromWeight(WeightFromShares(shares, f), f)
}
