// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed81659283/nodeagent/cgroups"
)

func TestWeightFromShares(t *testing.T) {
	for f, want := range map[cgroups.WeightFormula]map[uint64]uint64{
		cgroups.WeightLogQuadratic: {
			0: 0, 1: 1, 2: 1, 3: 2, 102: 17, 512: 59, 1024: 100, 2048: 174, 8192: 532, 262143: 10000,
			262144: 10000, math.MaxUint64: 10000,
		},
		cgroups.WeightLinear: {
			0: 0, 1: 1, 2: 1, 28: 1, 29: 2, 51: 2, 102: 4, 512: 20, 1024: 39, 262143: 9999, 262144: 10000,
			math.MaxUint64: 10000,
		},
	} {
		for shares, weight := range want {
			assert.Equal(t, weight, cgroups.WeightFromShares(shares, f), "formula %d, %d shares", f, shares)
		}
	}
}

func TestSharesFromWeight(t *testing.T) {
	for f, want := range map[cgroups.WeightFormula]map[uint64]uint64{
		cgroups.WeightLogQuadratic: {0: 0, 1: 2, 100: 1024, 10000: 262144, math.MaxUint64: 262144},
		cgroups.WeightLinear: {
			0: 0, 1: 2, 2: 28, 3: 54, 4: 80, 39: 998, 245: 6398, 10000: 262144, math.MaxUint64: 262144,
		},
	} {
		for weight, shares := range want {
			assert.Equal(t, shares, cgroups.SharesFromWeight(weight, f), "formula %d, weight %d", f, weight)
		}
	}
}

// More shares never weigh less, and each weight of WeightLogQuadratic survives the conversion to shares and back.
func TestWeightFormulasAreMonotonic(t *testing.T) {
	for _, f := range []cgroups.WeightFormula{cgroups.WeightLogQuadratic, cgroups.WeightLinear} {
		last := uint64(0)
		for shares := uint64(1); shares <= cgroups.MaxShares; shares++ {
			weight := cgroups.WeightFromShares(shares, f)
			if weight < last || weight < cgroups.MinWeight || weight > cgroups.MaxWeight {
				t.Fatalf("formula %d: %d shares give weight %d, fewer shares give %d", f, shares, weight, last)
			}
			last = weight
		}
	}
	for weight := uint64(cgroups.MinWeight); weight <= cgroups.MaxWeight; weight++ {
		shares := cgroups.SharesFromWeight(weight, cgroups.WeightLogQuadratic)
		if back := cgroups.WeightFromShares(shares, cgroups.WeightLogQuadratic); back != weight {
			t.Fatalf("weight %d gives %d shares, which give weight %d", weight, shares, back)
		}
	}
}

func TestRoundTripShares(t *testing.T) {
	linear := map[uint64]uint64{51: 28, 102: 80, 1024: 998}
	for shares, back := range linear {
		assert.Equal(t, back, cgroups.RoundTripShares(shares, cgroups.WeightLinear), shares)
	}
	for _, shares := range []uint64{2, 1024, 262144} {
		assert.Equal(t, shares, cgroups.RoundTripShares(shares, cgroups.WeightLogQuadratic))
	}
	for shares := uint64(2); shares <= cgroups.MaxShares; shares += 37 {
		back := cgroups.RoundTripShares(shares, cgroups.WeightLogQuadratic)
		assert.Equal(t, back, cgroups.RoundTripShares(back, cgroups.WeightLogQuadratic), "%d shares", shares)
	}
}
