// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"cmp"
	"slices"
)

// row is what a table has of one object. Versions are unique in a resource, so that a recreated object has another one.
type row[V any] struct {
	key, version string
	value        V
}

// rows are in the order of their keys, each key once. A slice takes little more than half the memory of a map, as it has no
// free places, and has a namespace in one piece; what is new in it moves what follows, which is rare beside a list.
type rows[V any] []row[V]

// find returns where the row of a key is, or would be, and whether it is there.
func (r rows[V]) findRow(key string) (at int, found bool) {
	return slices.BinarySearchFunc(r, key, func(r row[V], key string) int { return cmp.Compare(r.key, key) })
}

// in returns the part of a namespace; empty means all.
func (r rows[V]) inNamespace(namespace string) rows[V] {
	if namespace == "" {
		return r
	}
	first, _ := r.findRow(namespace + "/")
	end, _ := r.findRow(namespace + string(rune('/'+1)))
	return r[first:end]
}

// sorted returns rows in the order of their keys, in as much memory as they need. Of those of one key the last stays.
func (r rows[V]) sortRows() rows[V] {
	slices.SortStableFunc(r, func(a, b row[V]) int { return cmp.Compare(a.key, b.key) })
	all := r[:0]
	for i, row := range r {
		if i+1 == len(r) || r[i+1].key != row.key {
			all = append(all, row)
		}
	}
	return slices.Clone(all)
}

// changed returns the keys whose rows differ from those of other rows.
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
