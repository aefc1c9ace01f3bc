// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package safeyaml

import "fmt"

// The limits of one file. They are many times what a file of pods for one node needs, and are ours: the kubelet has
// none but the size of a file.
const (
	MaxValues = 50_000   // in a file of 1 MiB or less, twice as many in a larger one; see NewBudget
	MaxBytes  = 10 << 20 // of all strings and keys of YAML as they are in JSON, with aliases expanded; see NewBudget
	MaxDepth  = 100      // of lists and objects within each other
	MaxList   = 1_000    // elements of a list
	MaxKey    = 1 << 10  // bytes of a key
	MaxString = 2 << 20  // bytes of a string as it is written in JSON
	MaxNumber = 1 << 10  // bytes of a number
)

// inList is how many values an object costs as an element of a list, beside its own: there it becomes a struct, which
// may have many fields that nobody has set.
const inList = 3

// marksPerValue bounds the characters in YAML that can begin a node, wherever they stand: in strings, too.
const marksPerValue = 3

// Budget is what the documents of one file may hold together. Make one with [NewBudget]. It is not for use by several
// goroutines at once.
type Budget struct {
	most   int
	values int // of JSON
	nodes  int // of YAML, aliases expanded
	marks  int // of YAML
	bytes  int // of the strings of YAML, aliases expanded
	limit  int // what bytes was
}

// NewBudget returns the budget of a file of a size in bytes. The values of YAML are lists, objects, keys, strings and
// other scalars, and an object in a list counts as four. Those of a document that is JSON are less costly, and keys are
// not counted. Strings may become a little more than twice as long as the file.
func NewBudget(size int) *Budget {
	most := MaxValues
	if size > 1<<20 {
		most *= 2
	}
	limit := min(1<<20+2*size, MaxBytes)
	return &Budget{most: most, values: most, nodes: most, marks: marksPerValue * most, bytes: limit, limit: limit}
}

// Spend takes a number of values from the budget, for something that costs as much as they do.
func (b *Budget) Spend(values int) error {
	b.values -= values
	b.nodes -= values
	if b.values < 0 || b.nodes < 0 {
		return &Error{Err: b.tooMany()}
	}
	return nil
}

// Spent returns how many values have been taken from the budget.
func (b *Budget) Spent() int { return b.most - max(0, min(b.values, b.nodes)) }

func (b *Budget) tooMany() error { return fmt.Errorf("more than %d values in the file", b.most) }
