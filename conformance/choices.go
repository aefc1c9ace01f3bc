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

// RandomBytes returns the data of input number i. Equal seeds and numbers yield equal data.
func RandomBytes(seed, i uint64) []byte {
	source := rand.NewPCG(seed, i)
	data := make([]byte, inputSize)
	for at := 0; at < len(data); at += 8 {
		binary.LittleEndian.PutUint64(data[at:], source.Uint64())
	}
	return data
}

// next returns the next byte of the data. After the end of the data it returns zero.
func (c *Choices) next() byte {
	if c.used >= len(c.data) {
		return 0
	}
	c.used++
	return c.data[c.used-1]
}

// Uint64 returns a number with a random length of zero to eight bytes. Small numbers are thus as frequent as large ones.
func (c *Choices) Uint64() uint64 {
	var v uint64
	for range c.Int(9) {
		v = v<<8 | uint64(c.next())
	}
	return v
}

// Int64 returns a number with a random length in bytes. Small numbers are thus as frequent as large ones. One in 16 is
// negative.
func (c *Choices) Int64() int64 {
	if c.OneIn(16) {
		return -int64(c.Uint64() >> 1)
	}
	return int64(c.Uint64() >> 1)
}

// Int returns a number from 0 to n-1. n is at most 256.
func (c *Choices) Int(n int) int { return int(c.next()) % n }

// OneIn returns true with probability 1/n. A zero byte of the data results in false, which should be the simpler choice.
func (c *Choices) OneIn(n int) bool { return c.Int(n) == n-1 }

// Pick returns one of values. A zero byte of the data results in the first value, which should be the simplest.
func Pick[T any](c *Choices, values ...T) T { return values[c.Int(len(values))] }
