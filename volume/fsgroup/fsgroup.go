// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package fsgroup

import (
	"context"
	"fmt"
	"math"
	"time"
)

// Policy determines whether [Apply] checks all files. Its values are those of fsGroupChangePolicy in the pod spec; any other
// value means [Always].
type Policy string

// Values of [Policy].
const (
	// Always checks all files each time.
	Always Policy = "Always"
	// OnRootMismatch checks the files only if group or mode of the root directory is wrong.
	OnRootMismatch Policy = "OnRootMismatch"
)

// Options configure [Apply]. The zero value is for a writable volume, all files of which are checked.
type Options struct {
	// ReadOnly means that containers only read the volume: the group gets no write permission.
	ReadOnly bool
	// Policy selects whether all files are checked; "" means Always.
	Policy Policy
	// ReportSlow is called after 30 s, and then once a minute, with the number of files and directories processed so far. May be
	// nil.
	ReportSlow func(files int)
}

// FilesError means that the group or mode of some files could not be changed. [Apply] has changed all other files.
type FilesError struct {
	Files int     // number of files that failed
	Errs  []error // errors of the first ones, with their paths relative to the volume
}

// maxErrs is the maximum length of FilesError.Errs.
const maxErrs = 10

// Error returns the number of files, and the first error.
func (e *FilesError) Error() string {
	return fmt.Sprintf("files whose group or mode could not be changed: %d, such as %v", e.Files, e.Errs[0])
}

// Unwrap returns Errs.
func (e *FilesError) Unwrap() []error { return e.Errs }

// Options.ReportSlow is called first after firstReport, and then every reportPeriod.
const (
	firstReport  = 30 * time.Second
	reportPeriod = time.Minute
)

// Apply changes the group of all files of a volume, and gives it read permission and, unless opts.ReadOnly is true, write
// permission. dir is usually a directory, but may be a file. Apply skips files that cannot be changed, and then returns a
// [FilesError].
func Apply(ctx context.Context, dir string, gid int64, opts Options) error {
	if gid < 0 || gid >= math.MaxUint32 {
		return fmt.Errorf("change the group of %s: group ID %d is invalid", dir, gid)
	}
	if err := applyGroup(ctx, dir, uint32(gid), opts); err != nil {
		return fmt.Errorf("change the group of %s: %w", dir, err)
	}
	return nil
}

// Bits of a file mode. A writable volume gets bitsWrite on each file, a read-only volume bitsRead. Directories also get bitsDir.
const (
	bitsRead  = 0o440
	bitsWrite = 0o660
	bitsDir   = 0o2110 // set-group-ID and execute permissions
	bitsSetID = 0o6000
	bitsAll   = 0o7777
)

// target has the group and the permissions that Apply gives to files.
type target struct {
	gid      uint32
	readOnly bool
}

// targetMode returns the mode with the additional permission bits that the group needs. isDir is true for a directory.
func (w target) targetMode(mode uint32, isDir bool) uint32 {
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

// isCorrect reports whether a file with this group ID and mode needs no change. For a symbolic link, it compares only the
// group ID.
func (w target) isCorrect(gid, mode uint32, isDir, isLink bool) bool {
	return gid == w.gid && (isLink || mode&bitsAll == w.targetMode(mode, isDir))
}
