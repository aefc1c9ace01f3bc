// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/binary"
	"math/rand/v2"
)

// inputSize is more bytes than nearly every input asks for.
const inputSize = 1024

// Choices makes decisions out of bytes, the same ones out of the same bytes. The zero byte always takes the plainest
// way, and so does what comes when the bytes run out: a shorter or emptier string makes a simpler input.
type Choices struct {
	Plain bool // nothing that nobody should write

	data []byte
	used int
}

// NewChoices returns the choices that data makes.
func NewChoices(data []byte) *Choices { return &Choices{data: data} }

// RandomBytes returns the bytes of input number i of a seed.
func RandomBytes(seed, i uint64) []byte {
	source := rand.NewPCG(seed, i)
	data := make([]byte, inputSize)
	for at := 0; at < len(data); at += 8 {
		binary.LittleEndian.PutUint64(data[at:], source.Uint64())
	}
	return data
}

// next returns the next byte.
func (c *Choices) next() byte {
	if c.used >= len(c.data) {
		return 0
	}
	c.used++
	return c.data[c.used-1]
}

// Uint64 returns any number; small ones are as likely as large ones.
func (c *Choices) Uint64() uint64 {
	var v uint64
	for range c.Int(9) {
		v = v<<8 | uint64(c.next())
	}
	return v
}

// Int64 returns any number; small ones are as likely as large ones.
func (c *Choices) Int64() int64 {
	if c.OneIn(16) {
		return -int64(c.Uint64() >> 1)
	}
	return int64(c.Uint64() >> 1)
}

// Int returns a number from 0 to n-1, where n is at most 256.
func (c *Choices) Int(n int) int { return int(c.next()) % n }

// OneIn is true once in n times.
func (c *Choices) OneIn(n int) bool { return c.Int(n) == n-1 }

// Pick returns one of the values, the first of which is the plainest.
func Pick[T any](c *Choices, values ...T) T { return values[c.Int(len(values))] }
