// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/lifecycle"
)

// manifest is what is known of one file or address.
type manifest struct {
	entries []entry  // the pods it holds; while it has errors, those it held before as well
	errs    []*Error // of its last content, or of the attempt to read it
	known   bool     // it has been read without error since the start
	cost    cost     // of entries

	// Of files only:
	read   os.FileInfo // of the content in entries; nil: read it again
	seen   os.FileInfo // as last looked at
	since  time.Time   // when it was first like seen
	goneAt time.Time   // when it was first missed; zero while it is there
}

// cost is what it takes to keep what a manifest holds: values as package safeyaml counts them, and bytes of the text.
type cost struct{ values, bytes int }

func (c cost) plus(other cost) cost  { return cost{c.values + other.values, c.bytes + other.bytes} }
func (c cost) minus(other cost) cost { return cost{c.values - other.values, c.bytes - other.bytes} }

// maxCost returns the most that the manifests of a directory may cost together. It is ours: the kubelet has no bound.
func maxCost() cost { return cost{values: 300_000, bytes: 32 << 20} }

// take reads new content in, and reports whether it costs no more than room. Pods that did not change keep their
// pointers, and while there are errors those that are no longer found stay.
func (m *manifest) take(data []byte, o Origin, room cost) bool {
	entries, errs, cost := parse(data, o)
	fits := cost.values <= room.values && cost.bytes <= room.bytes
	if !fits {
		most := maxCost()
		err := fmt.Errorf("the manifests have more than %d values or %d bytes together", most.values, most.bytes)
		entries, errs, cost = nil, []*Error{{File: o.Location, Line: 1, Err: err}}, m.cost
	}
	before := make(map[string]entry, len(m.entries))
	for _, old := range m.entries {
		before[old.key()] = old
	}
	found := make(map[string]bool, len(entries))
	for i := range entries {
		e := &entries[i]
		found[e.key()] = true
		old, ok := before[e.key()]
		switch {
		case !ok:
			continue
		case old.sum == e.sum:
			e.pod = old.pod
		case old.pod.UID == e.pod.UID:
			e.pod.Annotations[AnnotationSeen] = old.pod.Annotations[AnnotationSeen]
		}
		e.won = old.won
	}
	if len(errs) > 0 {
		for _, old := range m.entries {
			if !found[old.key()] {
				entries = append(entries, old)
			}
		}
	}
	m.entries, m.errs, m.cost = entries, errs, cost
	m.known = m.known || len(errs) == 0
	return fits
}

// fail records that the content cannot be had.
func (m *manifest) fail(location string, err error) {
	m.errs, m.read = []*Error{{File: location, Err: err}}, nil
}

// changing reports whether entries are soon those of other content, which does not hold still yet.
func (m *manifest) changing() bool {
	return !m.goneAt.IsZero() || m.read != nil && !same(m.read, m.seen)
}

// claim is a pod that a manifest wants in the set.
type claim struct {
	*entry
	file     string
	changing bool // of the file
}

// merge makes one set of all manifests of a source, in the order given.
func merge(source string, manifests map[string]*manifest, order []string) Update {
	var claims []claim
	u := Update{PodSet: lifecycle.PodSet{Source: source, Shared: true}}
	for _, file := range order {
		m := manifests[file]
		u.Incomplete = u.Incomplete || !m.known
		for i := range m.entries {
			claims = append(claims, claim{entry: &m.entries[i], file: file, changing: m.changing()})
		}
	}
	duplicates := settle(claims)
	for _, c := range claims {
		if c.won {
			u.Pods = append(u.Pods, c.pod)
		}
	}
	for _, file := range order {
		errs := slices.Concat(manifests[file].errs, duplicates[file])
		slices.SortStableFunc(errs, func(a, b *Error) int { return cmp.Compare(a.Line, b.Line) })
		u.Errs = append(u.Errs, errs...)
	}
	return u
}

// settle decides who gets a name and a UID, as both are unique in a set: a pod that was in the last set comes first,
// then the order counts. It returns an error for each of the others, by file, unless either of the two is changing: a pod may
// have been taken out of one file and put into the other.
func settle(claims []claim) map[string][]*Error {
	byRight := slices.Clone(claims)
	slices.SortStableFunc(byRight, func(a, b claim) int { return cmp.Compare(rank(a.won), rank(b.won)) })
	names, uids := make(map[string]claim), make(map[string]claim)
	duplicates := make(map[string][]*Error)
	for _, c := range byRight {
		name, uid := c.key(), string(c.pod.UID)
		what, field := "pod "+name, "metadata.name"
		other, taken := names[name]
		if !taken {
			what, field = "UID "+uid, "metadata.uid"
			other, taken = uids[uid]
		}
		if c.won = !taken; taken && !c.changing && !other.changing && len(duplicates[c.file]) < maxErrors {
			duplicates[c.file] = append(duplicates[c.file], &Error{
				File: c.file, Line: c.line, Field: field, Err: fmt.Errorf("duplicate: %s is in %s", what, other.file),
			})
		}
		if !taken {
			names[name], uids[uid] = c, c
		}
	}
	return duplicates
}

func rank(won bool) int {
	if won {
		return 0
	}
	return 1
}
