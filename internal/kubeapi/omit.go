// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"cmp"
	"fmt"
	"slices"
)

// maxOmitted bounds one list: it ends once it has omitted as many times MaxObjects.
const maxOmitted = 19

// omission describes the objects that the API server has and a full table does not keep.
type omission[V any] struct {
	count int
	first row[V] // the most important of them
}

// Omitted returns how many objects the table does not keep because it is full, and the most important of them. The count is that of the
// last list and of the events since then, so that it can be too high.
func (t *Table[T, V]) Omitted() (count int, first V) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.omitted.count, t.omitted.first.value
}

// compare orders two rows by importance.
func (t *Table[T, V]) compareRows(a, b row[V]) int {
	return cmp.Or(t.options.Compare(a.value, b.value), cmp.Compare(a.key, b.key))
}

// omit removes the least important rows of a list that is too long, and adds them to omitted.
func (t *Table[T, V]) omitLeastImportant(list rows[V], omitted *omission[V]) rows[V] {
	slices.SortFunc(list, t.compareRows)
	most := t.options.MaxObjects
	t.countOmitted(omitted, list[most], len(list)-most)
	clear(list[most:])
	return list[:most]
}

// note adds count rows, of which r is the most important, to omitted.
func (t *Table[T, V]) countOmitted(omitted *omission[V], r row[V], count int) {
	if omitted.count == 0 || t.compareRows(r, omitted.first) < 0 {
		omitted.first = r
	}
	omitted.count += count
}

// putFull takes a new row into a full table if another row is less important, which it removes. It returns the changed keys. The caller
// holds the lock.
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
