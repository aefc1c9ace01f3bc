// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package static

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSince(t *testing.T) {
	start := time.Unix(1000, 0)
	seen := start.Add(2 * time.Second)
	tests := map[string]struct {
		told time.Time
		want float64
	}{
		"plausible time of the runtime": {start.Add(1234 * time.Millisecond), 1.234},
		"none told":                     {time.Unix(0, 0), 2},
		"time of the runtime before the start, after a clock step": {start.Add(-time.Second), 2},
		"time of the runtime after the observation":                {seen.Add(time.Second), 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			assert.InDelta(t, test.want, since(start, test.told.UnixNano(), seen), 1e-9)
		})
	}
}

func TestAwaitRest(t *testing.T) {
	tests := map[string]struct {
		busy time.Duration // busy period from the start
		took time.Duration
	}{
		"at rest":      {0, time.Second},
		"busy for 5 s": {5 * time.Second, 6 * time.Second},
		"busy always":  {time.Hour, restLimit + time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				require.NoError(t, awaitRest(t.Context(), func() (time.Duration, error) {
					return min(time.Since(start), test.busy), nil
				}))
				assert.Equal(t, test.took, time.Since(start))
			})
		})
	}
}

// The order rotates, so that no subject is always measured after the same one.
func TestEachRepeatBeginsWithAnotherSubject(t *testing.T) {
	b := &bench{opts: options{agents: []agent{{Name: "a"}, {Name: "b"}}, parallel: []int{4, 0}}}
	var names []string
	for _, s := range b.subjects(30) {
		names = append(names, fmt.Sprint(s.sample.Subject, " ", s.sample.Parallel))
	}
	assert.Equal(t, []string{"a 0", "b 0", floorName + " 4", floorName + " 30"}, names)
	assert.Equal(t, []int{0, 1, 2}, order(3, 0))
	assert.Equal(t, []int{2, 0, 1}, order(3, 5))
}
