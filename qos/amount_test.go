// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/qos"
)

// A saturated amount must not become zero, which means no limit, or negative.
func TestValueSaturatesAtInt64(t *testing.T) {
	for text, want := range map[string][2]int64{ // units, thousandths
		"0":                    {0, 0},
		"1m":                   {1, 1},
		"1500m":                {2, 1500},
		"0.1m":                 {1, 1},
		"1.5Gi":                {3 << 29, 3 << 29 * 1000},
		"9223372036854775":     {9223372036854775, 9223372036854775000},
		"9223372036854776":     {9223372036854776, math.MaxInt64},
		"9223372036854775807m": {9223372036854776, math.MaxInt64},
		"9223372036854775807":  {math.MaxInt64, math.MaxInt64},
		"16Ei":                 {math.MaxInt64, math.MaxInt64},
		"-5":                   {-5, -5000},
	} {
		q := resource.MustParse(text)
		assert.Equal(t, want, [2]int64{qos.Value(&q), qos.MilliValue(&q)}, text)
	}
}
