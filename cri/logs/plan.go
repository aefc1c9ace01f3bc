// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// Policy is how much of the log of a container is kept.
type Policy struct {
	// MaxSize is the size in bytes at which the current file is rotated. Zero means 10 MiB (containerLogMaxSize of
	// the kubelet), negative never.
	MaxSize int64
	// MaxFiles is how many files a log may have, the current one included. Zero means 5 (containerLogMaxFiles of
	// the kubelet); otherwise it is at least 2.
	MaxFiles int
}

const (
	defaultMaxSize  = 10 << 20
	defaultMaxFiles = 5
)

func (p Policy) withDefaults() Policy {
	if p.MaxSize == 0 {
		p.MaxSize = defaultMaxSize
	}
	if p.MaxFiles == 0 {
		p.MaxFiles = defaultMaxFiles
	}
	return p
}

// MaxBytes is what the files of a log may hold together: MaxFiles times MaxSize, and an eighth of MaxSize for the ends
// of lines by which files are larger than MaxSize. Without a MaxSize it is the largest number there is.
func (p Policy) MaxBytes() int64 {
	p = p.withDefaults()
	if p.MaxSize < 0 {
		return math.MaxInt64
	}
	return int64(p.MaxFiles)*p.MaxSize + p.MaxSize/8
}

// File is a file in the directory of a log.
type File struct {
	Name string
	Size int64
}

// Op is one kind of step in a rotation.
type Op string

// The steps of a rotation.
const (
	OpRemove   Op = "remove"   // delete the file
	OpRename   Op = "rename"   // give it the new name; it must not exist
	OpReopen   Op = "reopen"   // have the runtime open the log anew; when that fails, the rename is undone
	OpCompress Op = "compress" // replace the file with its compressed form, whenever there is time
)

// Action is one step of a rotation.
type Action struct {
	Op   Op
	File string
	To   string // the new name, of Rename and Compress
}

// Plan returns what is to be done about a log, in this order; nothing where all is well. It is told the name of the
// current file and what is in its directory, where files with foreign names are left alone.
//
// What an interrupted compression has left is removed, and the rotated files but the newest are compressed: whoever
// ships logs has until the next rotation to finish reading that one. A current file of MaxSize is
// rotated; before that the oldest files are removed until MaxFiles and [Policy.MaxBytes] hold. A missing one is reopened.
func (p Policy) Plan(log string, dir []File, now time.Time) (steps []Action) {
	p = p.withDefaults()
	if p.MaxSize < 0 {
		return nil
	}
	size := make(map[string]int64, len(dir))
	for _, f := range dir {
		size[f.Name] = f.Size
	}
	left, kept := tidy(log, slices.Sorted(maps.Keys(size)))
	for _, name := range left {
		steps = append(steps, Action{Op: OpRemove, File: name})
	}
	current, ok := size[log]
	switch {
	case !ok:
		steps = append(steps, Action{Op: OpReopen, File: log})
	case current >= p.MaxSize:
		newest := ""
		if len(kept) > 0 {
			newest = kept[len(kept)-1].key
		}
		excess := p.excess(kept, size, current)
		for _, r := range kept[:excess] {
			steps = append(steps, Action{Op: OpRemove, File: r.name})
		}
		key := nextKey(newest, now)
		to := log + "." + key
		steps = append(steps, Action{Op: OpRename, File: log, To: to}, Action{Op: OpReopen, File: log})
		kept = append(kept[excess:], rotated{name: to, key: key})
	}
	return append(steps, compressions(kept)...)
}

// tidy sorts the files in the directory of a log into what an interrupted compression has left, temporary files and
// originals beside their compressed form, and what is kept, oldest first.
func tidy(log string, names []string) (left []string, kept []rotated) {
	for _, name := range names {
		r, ok := parseName(log, name)
		if !ok {
			continue
		}
		if r.suffix == temporary || r.suffix == "" && slices.Contains(names, name+compressed) {
			left = append(left, name)
		} else {
			kept = append(kept, r)
		}
	}
	slices.SortFunc(kept, func(a, b rotated) int { return cmp.Compare(a.key, b.key) })
	return left, kept
}

// excess returns how many of the oldest rotated files must go before the current one joins them.
func (p Policy) excess(kept []rotated, size map[string]int64, current int64) int {
	n := max(0, len(kept)-(p.MaxFiles-2))
	sum := current
	for _, r := range kept[n:] {
		sum += size[r.name]
	}
	for ; n < len(kept) && sum > p.MaxBytes()-p.MaxSize; n++ {
		sum -= size[kept[n].name]
	}
	return n
}

// compressions returns the compressions that are due, those of the newest files first: they are kept longest.
func compressions(kept []rotated) (steps []Action) {
	for i := len(kept) - 2; i >= 0; i-- {
		if r := kept[i]; r.suffix == "" {
			steps = append(steps, Action{Op: OpCompress, File: r.name, To: r.name + compressed})
		}
	}
	return steps
}
