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

// manifest is the state of one manifest file or URL.
type manifest struct {
	entries   []entry  // the pods in the manifest; while it has errors, also previous pods that it lacks
	errs      []*Error // errors in the last content, or the error of reading it
	everValid bool     // the manifest was without errors at least once since the start of the agent
	cost      cost     // size of the last content that was within the limits

	// stat of the file when entries were read; nil: the file must be read again
	read         os.FileInfo // stat of the file that entries were read from; nil: read it again
	seen         os.FileInfo // stat of the file in the last scan
	seenSince    time.Time   // when a scan first found the file as in seen
	missingSince time.Time   // when a scan first did not find the file; zero: it exists
}

// cost is the size of a manifest: the number of values as counted by package safeyaml, and the number of bytes. Both limit the
// memory that its pods use.
type cost struct{ values, bytes int }

func (c cost) addCost(added cost) cost { return cost{c.values + added.values, c.bytes + added.bytes} }

func (c cost) subtractCost(removed cost) cost {
	return cost{c.values - removed.values, c.bytes - removed.bytes}
}

// maxCost returns the limits for all manifests of a directory together. The kubelet has no such limits.
func maxCost() cost { return cost{values: 300_000, bytes: 32 << 20} }

// applyContent replaces the pods of m by those in data, the new content of the manifest file or URL in origin. If data exceeds
// limit, the maximum size, it returns false and keeps all previous pods.
func (m *manifest) applyContent(data []byte, origin Origin, limit cost) bool {
	entries, errs, cost := parse(data, origin)
	fits := cost.values <= limit.values && cost.bytes <= limit.bytes
	if !fits {
		most := maxCost()
		err := fmt.Errorf("the manifests have more than %d values or %d bytes together", most.values, most.bytes)
		entries, errs, cost = nil, []*Error{{File: origin.Location, Line: 1, Err: err}}, m.cost
	}
	before := make(map[string]entry, len(m.entries))
	for _, old := range m.entries {
		before[old.podKey()] = old
	}
	found := make(map[string]bool, len(entries))
	for i := range entries {
		e := &entries[i]
		found[e.podKey()] = true
		old, ok := before[e.podKey()]
		switch {
		case !ok:
			continue
		case old.sum == e.sum:
			e.pod = old.pod // an unchanged pod keeps its pointer, so that it can be compared cheaply
		case old.pod.UID == e.pod.UID:
			e.pod.Annotations[AnnotationSeen] = old.pod.Annotations[AnnotationSeen]
		}
		e.inSet = old.inSet
	}
	if len(errs) > 0 {
		for _, old := range m.entries {
			if !found[old.podKey()] {
				entries = append(entries, old)
			}
		}
	}
	m.entries, m.errs, m.cost = entries, errs, cost
	m.everValid = m.everValid || len(errs) == 0
	return fits
}

// setReadError records err, the error of reading the manifest from location, a path or URL. The pods of the previous content
// remain.
func (m *manifest) setReadError(location string, err error) {
	m.errs, m.read = []*Error{{File: location, Err: err}}, nil
}

// isChanging reports whether the newest content of the file was not read: the file is missing, or it has changed too
// recently.
func (m *manifest) isChanging() bool {
	return !m.missingSince.IsZero() || m.read != nil && !isSameVersion(m.read, m.seen)
}

// claim is a pod in a manifest that may have the name or UID of another pod.
type claim struct {
	*entry
	file     string
	changing bool // the file is changing, and will be read again soon
}

// mergeManifests returns the pods and errors of all manifests of a source in the given order. The manifests are given by path.
func mergeManifests(source string, manifests map[string]*manifest, order []string) Update {
	var claims []claim
	u := Update{PodSet: lifecycle.PodSet{Source: source, Shared: true}}
	for _, file := range order {
		m := manifests[file]
		u.Incomplete = u.Incomplete || !m.everValid
		for i := range m.entries {
			claims = append(claims, claim{entry: &m.entries[i], file: file, changing: m.isChanging()})
		}
	}
	duplicates := resolveDuplicates(claims)
	for _, c := range claims {
		if c.inSet {
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

// resolveDuplicates chooses one pod (inSet) of those with the same name or UID, preferably of the previous set. It returns an
// error for each other pod, by the path of its file.
func resolveDuplicates(claims []claim) map[string][]*Error {
	byRight := slices.Clone(claims)
	slices.SortStableFunc(byRight, func(a, b claim) int { return cmp.Compare(claimRank(a.inSet), claimRank(b.inSet)) })
	names, uids := make(map[string]claim), make(map[string]claim)
	duplicates := make(map[string][]*Error)
	for _, c := range byRight {
		name, uid := c.podKey(), string(c.pod.UID)
		duplicate, field := "pod "+name, "metadata.name"
		other, taken := names[name]
		if !taken {
			duplicate, field = "UID "+uid, "metadata.uid"
			other, taken = uids[uid]
		}
		// There is no error while a file is changing: a pod may be moved between files.
		if c.inSet = !taken; taken && !c.changing && !other.changing && len(duplicates[c.file]) < maxErrors {
			duplicates[c.file] = append(duplicates[c.file], &Error{
				File: c.file, Line: c.line, Field: field, Err: fmt.Errorf("duplicate: %s is in %s", duplicate, other.file),
			})
		}
		if !taken {
			names[name], uids[uid] = c, c
		}
	}
	return duplicates
}

func claimRank(inSet bool) int {
	if inSet {
		return 0
	}
	return 1
}
