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

// Policy limits the log files that are kept per container.
type Policy struct {
	// MaxSize is the size in bytes at which the current file is rotated. Zero means 10 MiB (containerLogMaxSize of the kubelet);
	// a negative value disables rotation.
	MaxSize int64
	// MaxFiles is the maximum number of files of a log, including the current one. Zero means 5 (containerLogMaxFiles of the
	// kubelet); other values must be at least 2.
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

// MaxBytes returns the maximum total size of a log's files in bytes. It is MaxFiles times MaxSize, plus an eighth of
// MaxSize, because a file can exceed MaxSize by a line. If rotation is disabled, it is math.MaxInt64.
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

// Op is the kind of a rotation step.
type Op string

// The steps of a rotation.
const (
	OpRemove   Op = "remove"   // delete the file
	OpRename   Op = "rename"   // rename the file; the new name must not exist
	OpReopen   Op = "reopen"   // make the runtime reopen the log; if that fails, undo the rename
	OpCompress Op = "compress" // replace the file with its compressed form, at any later time
)

// Action is one step of a rotation.
type Action struct {
	Op   Op
	File string
	To   string // new name, for OpRename and OpCompress
}

// Plan returns the steps that bring a log within the policy, in order. log is the name of the current file. dir lists the
// files in its directory, of which Plan ignores the files of other programs.
//
// If the current file has reached MaxSize, the steps remove the oldest files, as MaxFiles and [Policy.MaxBytes] require, and
// rotate the current file. If the current file is missing, they reopen the log. They also remove remains of interrupted
// compressions. Finally they compress all rotated files except the newest, which a log shipper may still read.
func (p Policy) Plan(log string, dir []File, now time.Time) (steps []Action) {
	p = p.withDefaults()
	if p.MaxSize < 0 {
		return nil
	}
	size := make(map[string]int64, len(dir))
	for _, f := range dir {
		size[f.Name] = f.Size
	}
	stale, kept := sortRotated(log, slices.Sorted(maps.Keys(size)))
	for _, name := range stale {
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
		excess := p.countToRemove(kept, size, current)
		for _, r := range kept[:excess] {
			steps = append(steps, Action{Op: OpRemove, File: r.name})
		}
		key := nextKey(newest, now)
		to := log + "." + key
		steps = append(steps, Action{Op: OpRename, File: log, To: to}, Action{Op: OpReopen, File: log})
		kept = append(kept[excess:], rotatedFile{name: to, key: key})
	}
	return append(steps, planCompressions(kept)...)
}

// sortRotated returns the rotated files of the log, oldest first, and the stale files that an interrupted compression has
// left.
func sortRotated(log string, names []string) (stale []string, kept []rotatedFile) {
	for _, name := range names {
		r, ok := parseName(log, name)
		if !ok {
			continue
		}
		if r.suffix == temporarySuffix || r.suffix == "" && slices.Contains(names, name+compressedSuffix) { // a temporary file, or an original whose compressed form exists
			stale = append(stale, name)
		} else {
			kept = append(kept, r)
		}
	}
	slices.SortFunc(kept, func(a, b rotatedFile) int { return cmp.Compare(a.key, b.key) })
	return stale, kept
}

// countToRemove returns how many rotated files to remove, oldest first, before the current file is rotated.
func (p Policy) countToRemove(kept []rotatedFile, size map[string]int64, currentSize int64) int {
	n := max(0, len(kept)-(p.MaxFiles-2))
	sum := currentSize
	for _, r := range kept[n:] {
		sum += size[r.name]
	}
	for ; n < len(kept) && sum > p.MaxBytes()-p.MaxSize; n++ {
		sum -= size[kept[n].name]
	}
	return n
}

// planCompressions returns the steps that compress all rotated files except the newest. Newer files come first, because
// older files are removed sooner.
func planCompressions(kept []rotatedFile) (steps []Action) {
	for i := len(kept) - 2; i >= 0; i-- {
		if r := kept[i]; r.suffix == "" {
			steps = append(steps, Action{Op: OpCompress, File: r.name, To: r.name + compressedSuffix})
		}
	}
	return steps
}
