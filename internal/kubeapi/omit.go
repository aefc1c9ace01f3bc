// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"cmp"
	"fmt"
	"slices"
)

// maxOmitted limits the omitted objects of a list: the table reads no further pages after maxOmitted times MaxObjects of them.
const maxOmitted = 19

// omission counts the objects that a table omits because it is full.
type omission[V any] struct {
	count int
	first row[V] // the most important omitted row
}

// Omitted returns the number of objects that the table omits because it is full, and the most important omitted object.
// Deleted objects count until the next list.
func (t *Table[T, V]) Omitted() (count int, first V) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.omitted.count, t.omitted.first.value
}

// compareRows compares two rows by the importance of their objects, according to TableOptions.Compare. Rows of equal
// importance are compared by key.
func (t *Table[T, V]) compareRows(a, b row[V]) int {
	return cmp.Or(t.options.Compare(a.value, b.value), cmp.Compare(a.key, b.key))
}

// omitLeastImportant returns the MaxObjects most important rows of list, and adds the other rows to omitted. list must have
// more than MaxObjects rows.
func (t *Table[T, V]) omitLeastImportant(list rows[V], omitted *omission[V]) rows[V] {
	slices.SortFunc(list, t.compareRows)
	most := t.options.MaxObjects
	t.countOmitted(omitted, list[most], len(list)-most)
	clear(list[most:])
	return list[:most]
}

// countOmitted adds count rows to the number of omitted rows in omitted. row is the most important of these count rows.
func (t *Table[T, V]) countOmitted(omitted *omission[V], row row[V], count int) {
	if omitted.count == 0 || t.compareRows(row, omitted.first) < 0 {
		omitted.first = row
	}
	omitted.count += count
}

// putFull inserts r into a full table in place of the least important row. It returns the changed keys. The caller holds the
// lock.
func (t *Table[T, V]) putFull(r row[V]) (changed []string) {
	least := slices.MaxFunc(t.rows, t.compareRows)
	if t.compareRows(r, least) >= 0 {
		t.countOmitted(&t.omitted, r, 1)
		return nil
	}
	t.countOmitted(&t.omitted, least, 1)
	at, _ := t.rows.findRow(least.key)
	t.rows = slices.Delete(t.rows, at, at+1)
	at, _ = t.rows.findRow(r.key)
	t.rows = slices.Insert(t.rows, at, r)
	return []string{r.key, least.key}
}

func (t *Table[T, V]) omissionError(omitted omission[V]) error {
	return t.resource.wrapError("list", "", fmt.Errorf("%w: more than %d objects: %d are left out, the first is %.300s",
		ErrTooLarge, t.options.MaxObjects, omitted.count, omitted.first.key))
}
