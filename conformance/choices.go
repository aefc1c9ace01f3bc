// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/binary"
	"math/rand/v2"
)

// inputSize is the number of bytes of a generated input. Almost no function that creates a value from it needs more.
const inputSize = 1024

// Choices makes decisions from bytes: equal bytes yield equal decisions. A zero byte selects the simplest alternative, and so
// does a byte after the end. A shorter input, or one with more zeros, is therefore simpler.
type Choices struct {
	Plain bool // excludes values that no user should write

	data []byte
	used int
}

// NewChoices returns choices that are determined by data.
func NewChoices(data []byte) *Choices { return &Choices{data: data} }

// RandomBytes returns the data of input i. An equal seed and i yield equal data.
func RandomBytes(seed, i uint64) []byte {
	source := rand.NewPCG(seed, i)
	data := make([]byte, inputSize)
	for at := 0; at < len(data); at += 8 {
		binary.LittleEndian.PutUint64(data[at:], source.Uint64())
	}
	return data
}

// next returns the next byte of the data, or zero after the end of the data.
func (c *Choices) next() byte {
	if c.used >= len(c.data) {
		return 0
	}
	c.used++
	return c.data[c.used-1]
}

// Uint64 returns a number of zero to eight bytes. Its length is random, so that small numbers are as frequent as large ones.
func (c *Choices) Uint64() uint64 {
	var v uint64
	for range c.Int(9) {
		v = v<<8 | uint64(c.next())
	}
	return v
}

// Int64 returns a number whose length in bytes is random, so that small numbers are as frequent as large ones. One in 16 is
// negative.
func (c *Choices) Int64() int64 {
	if c.OneIn(16) {
		return -int64(c.Uint64() >> 1)
	}
	return int64(c.Uint64() >> 1)
}

// Int returns a number from 0 to n-1. n is at most 256.
func (c *Choices) Int(n int) int { return int(c.next()) % n }

// OneIn returns true with probability 1/n. For a zero byte of the data it returns false, which should be the simpler choice.
func (c *Choices) OneIn(n int) bool { return c.Int(n) == n-1 }

// Pick returns one of values. For a zero byte of the data it returns the first, which should be the simplest.
func Pick[T any](c *Choices, values ...T) T { return values[c.Int(len(values))] }
