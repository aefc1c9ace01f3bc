// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package safeyaml

import "fmt"

// The limits of one file. They are far above the size of a file with the pods of one node. The kubelet only limits the size of a
// file.
const (
	MaxValues = 50_000   // values in a file of at most 1 MiB; twice as many in a larger file
	MaxBytes  = 10 << 20 // bytes of all strings and keys of a YAML file, as JSON and with aliases expanded
	MaxDepth  = 100      // levels of nested lists and objects
	MaxList   = 1_000    // elements of a list
	MaxKey    = 1 << 10  // bytes of a key
	MaxString = 2 << 20  // bytes of a string in JSON
	MaxNumber = 1 << 10  // bytes of a number
)

// listElementCost is the number of values that an object costs as an element of a list, in addition to its own: it is decoded
// into a struct, which may have many unset fields.
const listElementCost = 3

// marksPerValue limits the number of characters in YAML that can begin a node, including those in strings, as a multiple of the
// number of values.
const marksPerValue = 3

// Budget is the remaining number of values and bytes that the documents of one file may have. [NewBudget] creates it. It is not
// safe for concurrent use.
type Budget struct {
	maxValues int
	values    int // remaining JSON values
	nodes     int // remaining YAML nodes, with aliases expanded
	marks     int // remaining characters that can begin a YAML node
	bytes     int // remaining bytes of YAML strings, with aliases expanded
	maxBytes  int // initial value of bytes
}

// NewBudget returns the budget of a file of size bytes, for its values and the total length of its strings. Each list,
// object, scalar and YAML key is a value; an object in a list counts as four. The strings may have 1 MiB plus twice the size
// of the file, but at most MaxBytes.
func NewBudget(size int) *Budget {
	most := MaxValues
	if size > 1<<20 {
		most *= 2
	}
	limit := min(1<<20+2*size, MaxBytes)
	return &Budget{maxValues: most, values: most, nodes: most, marks: marksPerValue * most, bytes: limit, maxBytes: limit}
}

// Spend reduces the budget by a number of values, for work that costs as much as decoding these values. It returns an error
// if the budget is exceeded.
func (b *Budget) Spend(values int) error {
	b.values -= values
	b.nodes -= values
	if b.values < 0 || b.nodes < 0 {
		return &Error{Err: b.tooManyValues()}
	}
	return nil
}

// Spent returns by how many values the budget was reduced so far.
func (b *Budget) Spent() int { return b.maxValues - max(0, min(b.values, b.nodes)) }

// tooManyValues returns the error for a file with more values than its budget permits.
func (b *Budget) tooManyValues() error {
	return fmt.Errorf("more than %d values in the file", b.maxValues)
}
