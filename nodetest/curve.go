// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"math"
	"math/rand/v2"
	"sort"
	"sync"
	"time"
)

// Curve is an amount over time: CPUs, bytes or a number of processes, at an age of the container since its start. A Curve must depend on the age
// only. Negative amounts and NaN count as zero.
type Curve func(age time.Duration) float64

// Constant returns a curve with one amount.
func Constant(amount float64) Curve { return func(time.Duration) float64 { return amount } }

// Ramp returns a curve that changes linearly between the amounts from and to in the time during, and then remains at to.
func Ramp(from, to float64, during time.Duration) Curve {
	return func(age time.Duration) float64 {
		if age >= during {
			return to
		}
		return from + (to-from)*float64(age)/float64(during)
	}
}

// Step is an amount that applies from the age At on.
type Step struct {
	At     time.Duration
	Amount float64
}

// Steps returns a curve that has the amount of the last step whose field At is not after the age. Before the first step it
// is zero. The steps must be sorted by At.
func Steps(steps ...Step) Curve {
	return func(age time.Duration) float64 {
		i := sort.Search(len(steps), func(i int) bool { return steps[i].At > age })
		if i == 0 {
			return 0
		}
		return steps[i-1].Amount
	}
}

// Diurnal returns a sine curve around mean with the given amplitude and period. It starts at mean and rises first.
func Diurnal(mean, amplitude float64, period time.Duration) Curve {
	return func(age time.Duration) float64 {
		return mean + amplitude*math.Sin(2*math.Pi*float64(age)/float64(max(period, 1)))
	}
}

// BurstOptions describes a curve of bursts.
type BurstOptions struct {
	Base, Burst float64       // amount outside of bursts, and amount that each burst adds
	Every       time.Duration // mean time between the beginnings of two bursts, at least a second; zero: no bursts
	Length      time.Duration // duration of a burst; bursts may overlap, and then add up
	Seed        uint64        // equal seeds yield equal bursts
}

// Bursts returns a curve with bursts that start at random times. The times between the starts are exponentially distributed,
// as in a Poisson process.
func Bursts(o BurstOptions) Curve {
	if o.Every > 0 {
		o.Every = max(o.Every, time.Second) // the begins are kept
	}
	random := rand.New(rand.NewPCG(o.Seed, 0x6e6f6465))
	var begins []time.Duration
	var last time.Duration
	var mu sync.Mutex // guards random, begins and last: nodes may share a curve
	return func(age time.Duration) float64 {
		mu.Lock()
		defer mu.Unlock()
		for o.Every > 0 && last <= age {
			last += max(time.Duration(random.ExpFloat64()*float64(o.Every)), 1)
			begins = append(begins, last)
		}
		ended := sort.Search(len(begins), func(i int) bool { return begins[i]+o.Length > age })
		begun := sort.Search(len(begins), func(i int) bool { return begins[i] > age })
		return o.Base + o.Burst*float64(begun-ended)
	}
}

// Sum returns the sum of curves.
func Sum(curves ...Curve) Curve {
	return func(age time.Duration) (sum float64) {
		for _, c := range curves {
			sum += c(age)
		}
		return sum
	}
}

// at returns the amount of the curve at the given age of the container. A nil curve, a negative amount and NaN count as
// zero.
func (c Curve) at(age time.Duration) float64 {
	if c == nil {
		return 0
	}
	if v := c(age); v > 0 { // false for NaN
		return v
	}
	return 0
}
