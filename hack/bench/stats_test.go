// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestQuantile(t *testing.T) {
	values := []float64{4, 1, 3, 2}
	assert.InDelta(t, 1, quantile(values, 0), 1e-9)
	assert.InDelta(t, 2.5, median(values), 1e-9)
	assert.InDelta(t, 3.7, quantile(values, 0.9), 1e-9)
	assert.InDelta(t, 4, quantile(values, 1), 1e-9)
	assert.Equal(t, []float64{4, 1, 3, 2}, values, "the argument stays as it is")

	assert.InDelta(t, 7, quantile([]float64{7}, 0.9), 1e-9)
	assert.True(t, math.IsNaN(median(nil)))
}
