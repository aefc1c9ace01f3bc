// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package stat_test

import (
	"math"
	"testing"

	"github.com/seed81659283/nodeagent/hack/bench/internal/stat"
	"github.com/stretchr/testify/assert"
)

func TestQuantile(t *testing.T) {
	values := []float64{4, 1, 3, 2}
	assert.InDelta(t, 1, stat.Quantile(values, 0), 1e-9)
	assert.InDelta(t, 2.5, stat.Median(values), 1e-9)
	assert.InDelta(t, 3.7, stat.Quantile(values, 0.9), 1e-9)
	assert.InDelta(t, 4, stat.Quantile(values, 1), 1e-9)
	assert.Equal(t, []float64{4, 1, 3, 2}, values, "the argument is not modified")

	assert.InDelta(t, 7, stat.Quantile([]float64{7}, 0.9), 1e-9)
	assert.True(t, math.IsNaN(stat.Median(nil)))
}

func TestRatioAndCell(t *testing.T) {
	assert.Equal(t, "1.500", stat.Cell(stat.Ratio(3, 2)))
	for _, none := range [][2]float64{{0, 1}, {1, 0}, {-1, 2}, {math.NaN(), 1}} {
		assert.Equal(t, "-", stat.Cell(stat.Ratio(none[0], none[1])), none)
	}
	assert.Equal(t, "-", stat.Cell(math.Inf(1)))
}
