// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/nodetest"
)

func TestCurves(t *testing.T) {
	for _, tt := range []struct {
		name  string
		curve nodetest.Curve
		want  map[time.Duration]float64
	}{
		{"constant", nodetest.Constant(3), map[time.Duration]float64{0: 3, time.Hour: 3}},
		{"ramp", nodetest.Ramp(10, 20, time.Minute), map[time.Duration]float64{0: 10, 30 * time.Second: 15, time.Minute: 20, time.Hour: 20}},
		{"ramp downwards", nodetest.Ramp(4, 0, 4*time.Second), map[time.Duration]float64{time.Second: 3, time.Hour: 0}},
		{"ramp of no time", nodetest.Ramp(4, 1, 0), map[time.Duration]float64{0: 1}},
		{
			"steps", nodetest.Steps(nodetest.Step{At: time.Second, Amount: 2}, nodetest.Step{At: time.Minute, Amount: 1}),
			map[time.Duration]float64{0: 0, time.Second: 2, 59 * time.Second: 2, time.Minute: 1},
		},
		{"diurnal", nodetest.Diurnal(10, 5, 24*time.Hour), map[time.Duration]float64{0: 10, 6 * time.Hour: 15, 18 * time.Hour: 5}},
		{"sum", nodetest.Sum(nodetest.Constant(1), nodetest.Ramp(0, 1, time.Second)), map[time.Duration]float64{0: 1, time.Minute: 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for age, want := range tt.want {
				assert.InDelta(t, want, tt.curve(age), 1e-9, "age %v", age)
			}
		})
	}
}

// A Poisson process: the share of time in a burst is that of its mean, and the curve depends on the age only.
func TestBursts(t *testing.T) {
	o := nodetest.BurstOptions{Base: 1, Burst: 10, Every: time.Minute, Length: 6 * time.Second, Seed: 3}
	curve, again := nodetest.Bursts(o), nodetest.Bursts(o)
	var sum float64
	const hours = 200
	for age := time.Duration(0); age < hours*time.Hour; age += time.Second {
		sum += curve(age)
	}
	assert.InDelta(t, 2, sum/(hours*3600), 0.1, "a burst of ten during a tenth of the time, and one always")
	for _, age := range []time.Duration{100 * time.Hour, time.Minute, 0, 50 * time.Hour} {
		assert.InDelta(t, curve(age), again(age), 0, "age %v, asked in another order", age)
	}
	dense := nodetest.Bursts(nodetest.BurstOptions{Burst: 1, Every: 1, Length: time.Second})
	assert.Less(t, dense(24*time.Hour), 20.0, "bursts begin at most once a second on average, as their times are kept")
	assert.InDelta(t, 1, nodetest.Bursts(nodetest.BurstOptions{Base: 1})(time.Hour), 0, "no interval means no bursts")
}

func TestParseBehavior(t *testing.T) {
	b, err := nodetest.ParseBehavior("cpu=500m memory=ramp(64Mi,128Mi,10m) volume/data=1Gi tasks=steps(1@0s,5@1m) exit=3@30s stop=2s", 0)
	require.NoError(t, err)
	assert.InDelta(t, 0.5, b.Usage.CPU(time.Hour), 1e-9)
	assert.InDelta(t, 96<<20, b.Usage.Memory(5*time.Minute), 1)
	assert.InDelta(t, 1<<30, b.Usage.Volumes["data"](0), 0)
	assert.InDelta(t, 5, b.Usage.Tasks(time.Minute), 0)
	assert.Equal(t, int32(3), b.Exit.Code)
	assert.Equal(t, 30*time.Second, b.Exit.After)
	assert.Equal(t, 2*time.Second, b.Stop.After)
	assert.Nil(t, b.Usage.Logs)
}

func TestParseBehaviorNamesTheInvalidField(t *testing.T) {
	for text, want := range map[string]string{
		"memory":                              `field "memory" has no value`,
		"color=1":                             `field "color=1": no such field`,
		"cpu=":                                `"" is no quantity`,
		"cpu=-1":                              `"-1" is negative or too large`,
		"cpu=ramp(1,2":                        "no closing parenthesis",
		"cpu=ramp(1,2)":                       "an argument is missing",
		"cpu=ramp(1,2,3m,4)":                  "1 arguments too many",
		"cpu=ramp(1,2,-3m)":                   `"-3m" is no duration`,
		"cpu=sine(1)":                         `no function "sine"`,
		"cpu=steps(1@2m,2@1m)":                "steps are not in the order of their ages",
		"cpu=steps(1)":                        "a step is not AMOUNT@AGE",
		"exit=1":                              "not CODE@AGE",
		"exit=300@1s":                         "not CODE@AGE",
		"stop=soon":                           `"soon" is no duration`,
		"cpu=" + string(make([]byte, 20_000)): "more than 16384",
	} {
		_, err := nodetest.ParseBehavior(text, 0)
		require.ErrorContains(t, err, want, text)
	}
}

// Any text yields an error or curves that can be evaluated at any age.
func FuzzParseBehavior(f *testing.F) {
	f.Add("cpu=bursts(0.1,1,1m,10s) memory=diurnal(1Gi,1Gi,1h) logs=ramp(0,1,0s)")
	f.Add("exit=255@0s volume/=1")
	f.Fuzz(func(t *testing.T, text string) {
		b, err := nodetest.ParseBehavior(text, 1)
		if err != nil {
			return
		}
		for _, c := range []nodetest.Curve{b.Usage.CPU, b.Usage.Memory, b.Usage.Cache, b.Usage.Tasks, b.Usage.Layer, b.Usage.Logs} {
			if c != nil {
				for _, age := range []time.Duration{0, time.Minute} {
					assert.False(t, math.IsInf(c(age), 0))
				}
			}
		}
	})
}
