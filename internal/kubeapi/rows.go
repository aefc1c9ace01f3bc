// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"cmp"
	"slices"
)

// row is the table entry of one object. Resource versions are unique in a resource: a recreated object has another version.
type row[V any] struct {
	key, version string
	value        V
}

// rows holds the rows of a table, sorted by key. Each key is unique, and rows of a namespace are adjacent. The slice needs about
// half the memory of a map. An insertion moves rows, but insertions are rare compared with lists.
type rows[V any] []row[V]

// findRow returns the index of the row with this key, or the index at which it must be inserted.
func (r rows[V]) findRow(key string) (at int, found bool) {
	return slices.BinarySearchFunc(r, key, func(r row[V], key string) int { return cmp.Compare(r.key, key) })
}

// inNamespace returns the rows of objects in the namespace. An empty namespace means all rows.
func (r rows[V]) inNamespace(namespace string) rows[V] {
	if namespace == "" {
		return r
	}
	first, _ := r.findRow(namespace + "/")
	end, _ := r.findRow(namespace + string(rune('/'+1)))
	return r[first:end]
}

// sortRows returns the rows sorted by key, with the last row of each key.
func (r rows[V]) sortRows() rows[V] {
	slices.SortStableFunc(r, func(a, b row[V]) int { return cmp.Compare(a.key, b.key) })
	all := r[:0]
	for i, row := range r {
		if i+1 == len(r) || r[i+1].key != row.key {
			all = append(all, row)
		}
	}
	// Without spare capacity.
	return slices.Clone(all)
}

// changedKeys returns the keys of the rows that are only in r, only in others, or in both with different versions.
func (r rows[V]) changedKeys(others rows[V]) (keys []string) {
	for _, other := range others {
		if at, was := r.findRow(other.key); !was || r[at].version != other.version {
			keys = append(keys, other.key)
		}
	}
	for _, row := range r {
		if _, still := others.findRow(row.key); !still {
			keys = append(keys, row.key)
		}
	}
	return keys
}
