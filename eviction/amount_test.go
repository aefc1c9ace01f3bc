// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/eviction"
)

func TestParseAmount(t *testing.T) {
	for text, want := range map[string]eviction.Amount{
		"100Mi":   {Absolute: 100 << 20, Format: eviction.BinarySI},
		"1.5Gi":   {Absolute: 1536 << 20, Format: eviction.BinarySI},
		"1G":      {Absolute: 1e9},
		"1e9":     {Absolute: 1e9, Format: eviction.DecimalExponent},
		"1E":      {Absolute: 1e18},
		"+7":      {Absolute: 7},
		"1m":      {Absolute: 1},
		".5":      {Absolute: 1},
		"1e-900":  {Absolute: 1, Format: eviction.DecimalExponent},
		"1e900":   {Absolute: math.MaxInt64, Format: eviction.DecimalExponent},
		"9Ei":     {Absolute: math.MaxInt64, Format: eviction.BinarySI},
		"5%":      {Fraction: 0.05},
		"10.5%":   {Fraction: 0.105},
		"10%%":    {Fraction: 0.1},
		"1e1%":    {Fraction: 0.1},
		"0.0%":    {},
		"0%":      {},
		"100%":    {},
		"100.00%": {Fraction: 1},
	} {
		v, err := eviction.ParseAmount(text)
		require.NoError(t, err, text)
		require.Equal(t, want, v, text)
	}
	for text, why := range map[string]string{
		"":                      "not a quantity",
		".":                     "not a quantity",
		"-":                     "not a quantity",
		"Mi":                    "not a quantity",
		"0":                     "must be positive",
		"-1Mi":                  "must be positive",
		"-0.1":                  "must be positive",
		"1Xi":                   "not a suffix",
		"1 Mi":                  "not a suffix",
		"1e":                    "not a suffix",
		"1e1001":                "not a suffix",
		"1i":                    "not a suffix",
		"abc%":                  "not a number",
		"%":                     "not a number",
		"101%":                  "between 0% and 100%",
		"-1%":                   "between 0% and 100%",
		"NaN%":                  "between 0% and 100%",
		"Inf%":                  "between 0% and 100%",
		strings.Repeat("1", 65): "longer than 64 bytes",
	} {
		_, err := eviction.ParseAmount(text)
		require.ErrorContains(t, err, why, text)
		require.ErrorContains(t, err, `"`+text[:min(len(text), 64)]+`"`, "the error contains the value")
	}
}

func TestParseReclaim(t *testing.T) {
	for text, want := range map[string]eviction.Amount{
		"0":     {},
		"500Mi": {Absolute: 500 << 20, Format: eviction.BinarySI},
		"150%":  {Fraction: 1.5},
	} {
		v, err := eviction.ParseReclaim(text)
		require.NoError(t, err, text)
		require.Equal(t, want, v, text)
	}
	for _, text := range []string{"0%", "-1%", "NaN%", "Inf%", "-1Mi", "x"} {
		_, err := eviction.ParseReclaim(text)
		require.ErrorContains(t, err, text)
	}
}

// Percentages have the kubelet's precision, and results do not overflow.
func TestAmountOfHasKubeletPrecision(t *testing.T) {
	for _, c := range []struct {
		text     string
		capacity int64
		want     int64
		quantity string
	}{
		{"10%", 10 << 30, 1073741840, "1073741840"},
		{"10.5%", 16 << 30, 1803886208, "1803886208"},
		{"5%", 10 << 30, 536870920, "536870920"},
		{"50%", 2 << 30, 1 << 30, "1Gi"},
		{"100Mi", 5, 100 << 20, "100Mi"},
		{"1000Mi", 0, 1000 << 20, "1000Mi"},
		{"2000", 0, 2000, "2k"},
		{"2e6", 0, 2000000, "2e6"},
		{"50%", math.MinInt64, math.MinInt64 / 2, "-4Ei"},
	} {
		v, err := eviction.ParseAmount(c.text)
		require.NoError(t, err)
		require.Equal(t, c.want, v.Of(c.capacity), c.text)
		require.Equal(t, c.quantity, eviction.QuantityOfAmount(v, c.capacity), c.text)
	}
	more := eviction.Amount{Fraction: math.MaxFloat32}
	require.EqualValues(t, math.MaxInt64, more.Of(math.MaxInt64))
	require.EqualValues(t, math.MinInt64, more.Of(math.MinInt64))
	require.Zero(t, more.Of(0))
}

func TestAmountString(t *testing.T) {
	for _, text := range []string{"100Mi", "10%", "5.5%", "2k", "2e6", "0", "150%", "1023", "1Ki"} {
		v, err := eviction.ParseReclaim(text)
		require.NoError(t, err)
		require.Equal(t, text, v.String())
	}
}

// A number is formatted as in apimachinery.
func TestAmountFormat(t *testing.T) {
	formats := map[eviction.AmountFormat]resource.Format{
		eviction.DecimalSI: resource.DecimalSI, eviction.BinarySI: resource.BinarySI, eviction.DecimalExponent: resource.DecimalExponent,
	}
	for ours, theirs := range formats {
		for _, n := range []int64{0, 1, -1, 999, 1000, 1023, 1024, 1500, 1536, 1e6, 1 << 20, 1<<20 + 1, 15e17, math.MaxInt64, -math.MaxInt64} {
			require.Equal(t, resource.NewQuantity(n, theirs).String(), eviction.FormatQuantity(ours, n), "%d as %s", n, theirs)
		}
	}
}

// FuzzParseAmount compares with apimachinery, except for long texts and exponents that apimachinery reads as smaller ones.
func FuzzParseAmount(f *testing.F) {
	for _, s := range []string{"100Mi", "-1", "1.5Gi", "1e9", "1E", "0.1n", ".", "+.5Ki", "10%", "NaN%", "99999999999999999999", "1e-30"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := eviction.ParseAmount(s)
		if err == nil {
			require.True(t, v.Absolute >= 0 && v.Fraction >= 0 && v.Fraction <= 1, s)
			require.LessOrEqual(t, v.Of(1<<40), max(v.Absolute, 1<<40))
		}
		if strings.HasSuffix(s, "%") || len(s) > 64 || strings.ContainsAny(s, "eE") && len(s) > 6 || !strings.ContainsAny(s, "0123456789") {
			return
		}
		q, theirs := resource.ParseQuantity(s)
		require.Equal(t, theirs == nil && q.Sign() > 0, err == nil, "%q: %v, %v", s, theirs, err)
		if err != nil {
			return
		}
		if limit := *resource.NewQuantity(math.MaxInt64, resource.DecimalSI); q.Cmp(limit) >= 0 {
			require.EqualValues(t, math.MaxInt64, v.Absolute)
			return
		}
		require.Equal(t, q.Value(), v.Absolute, s)
		if q.Cmp(*resource.NewQuantity(v.Absolute, q.Format)) == 0 { // without rounding up a fraction
			require.Equal(t, q.String(), eviction.QuantityOfAmount(v, 0), s)
		}
	})
}

func ExampleParseAmount() {
	for _, text := range []string{"100Mi", "10%"} {
		v, err := eviction.ParseAmount(text)
		fmt.Println(v, v.Of(10<<30), err)
	}
	// Output:
	// 100Mi 104857600 <nil>
	// 10% 1073741840 <nil>
}
