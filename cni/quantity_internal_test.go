// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestParseQuantity(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "1": 1, "1k": 1000, "1M": 1e6, "1.5M": 1_500_000, "1Ki": 1024, "1.5Gi": 3 << 29, "1P": 1e15, "1E": 1e18, "1e3": 1000,
		"1E3": 1000, "2e-1": 1, "100m": 1, "1500m": 2, "1u": 1, "1n": 1, ".5": 1, "1.": 1, "+5": 5, "-5": -5, "-1.5": -2, "8E": 8e18,
		"10E": math.MaxInt64, "-10E": -math.MaxInt64, "1e999": math.MaxInt64, "1e-999": 1, "1e99999999999999999999": math.MaxInt64,
	} {
		got, err := parseQuantity(s)
		require.NoError(t, err, s)
		assert.Equal(t, want, got, s)
	}
	for _, s := range []string{"", "k", "1K", "1ki", "1 k", "1kk", "--1", "1e", "1e1.5", "0x10", "1_000", "Inf", "1/2", strings.Repeat("1", 65)} {
		_, err := parseQuantity(s)
		assert.Error(t, err, s)
	}
}

// largeExponent matches numbers for which resource.Quantity takes minutes or all memory.
var largeExponent = regexp.MustCompile(`[eE][+-]?0*[1-9][0-9]{3}`)

// The accepted bandwidths and their values are those of resource.Quantity.
func FuzzBandwidth(f *testing.F) {
	for _, s := range []string{"1M", "1.5Gi", "1000000m", "1e3", "1E-3", "1P", ".5k", "1000.", "-1M", "+5k", "1e-3", "12345678901234567890", "999.0001"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parseRate(map[string]string{"key": s}, "key")
		if len(s) > maxQuantity || largeExponent.MatchString(s) {
			return
		}
		want, wantErr := resource.ParseQuantity(s)
		accepted := wantErr == nil && want.Value() >= minRate && want.Value() <= maxRate
		require.Equal(t, accepted, err == nil, "%q: %v, %v", s, wantErr, err)
		if accepted {
			require.Equal(t, want.Value(), got, "%q", s)
		}
	})
}
