// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package fsgroup

import (
	"context"
	"fmt"
	"math"
	"time"
)

// Policy says when a volume is walked. Its values are those of the field fsGroupChangePolicy of a pod; any other is as
// Always.
type Policy string

// Policies.
const (
	// Always walks the volume each time.
	Always Policy = "Always"
	// OnRootMismatch walks it if its root is not as the walk would leave it.
	OnRootMismatch Policy = "OnRootMismatch"
)

// Options says how a volume gets its group. The zero value is a writable volume that is walked.
type Options struct {
	// ReadOnly says that the containers do not write to the volume.
	ReadOnly bool
	// Policy says when the volume is walked; "" is Always.
	Policy Policy
	// Slow is called when the walk has taken 30 s, and once a minute after that, with the number of files and directories
	// that it has come to. Nil is not called.
	Slow func(files int)
}

// FilesError says that the group of some files could not be changed, or their mode.
type FilesError struct {
	Files int     // how many
	Errs  []error // of the first of them, with their paths in the volume
}

// maxErrs is how many errors a FilesError has.
const maxErrs = 10

// Error names the first of the files.
func (e *FilesError) Error() string {
	return fmt.Sprintf("files whose group or mode could not be changed: %d, such as %v", e.Files, e.Errs[0])
}

// Unwrap returns the causes, for errors.Is.
func (e *FilesError) Unwrap() []error { return e.Errs }

// When a walk is reported as slow.
const (
	slowFirst = 30 * time.Second
	slowAgain = time.Minute
)

// Apply gives a volume to a group. dir is its root: usually a directory, but a single file will do.
func Apply(ctx context.Context, dir string, gid int64, o Options) error {
	if gid < 0 || gid >= math.MaxUint32 {
		return fmt.Errorf("change the group of %s: group ID %d is invalid", dir, gid)
	}
	if err := apply(ctx, dir, uint32(gid), o); err != nil {
		return fmt.Errorf("change the group of %s: %w", dir, err)
	}
	return nil
}

// Permission bits as the kernel has them.
const (
	bitsRead  = 0o440
	bitsWrite = 0o660
	bitsDir   = 0o2110 // set-group-ID, and the way into it
	bitsSetID = 0o6000
	bitsAll   = 0o7777
)

// wanted is what a walk gives to files.
type wanted struct {
	gid      uint32
	readOnly bool
}

// mode returns the mode that a file or directory gets.
func (w wanted) mode(mode uint32, isDir bool) uint32 {
	mode &= bitsAll
	if w.readOnly {
		mode |= bitsRead
	} else {
		mode |= bitsWrite
	}
	if isDir {
		mode |= bitsDir
	}
	return mode
}

// right reports whether a file is as it should be, which for a link is a matter of the group alone.
func (w wanted) right(gid, mode uint32, isDir, isLink bool) bool {
	return gid == w.gid && (isLink || mode&bitsAll == w.mode(mode, isDir))
}
