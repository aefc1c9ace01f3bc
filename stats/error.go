// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"context"
	"errors"
	"io/fs"
	"syscall"
)

// Error is the error of a source, such as a cgroup or the runtime, whose values are missing or outdated. [errors.Is] reports
// whether it is a timeout: [context.DeadlineExceeded].
type Error struct {
	Source string // "cgroup", "proc", "runtime", "nodefs", "imagefs", "containerfs", "directory" or "volume"
	Object string // cgroup, file or call; may be empty
	Err    error
}

// Error returns "source object: cause".
func (e *Error) Error() string {
	if e.Object == "" {
		return e.Source + ": " + e.Err.Error()
	}
	return e.Source + " " + e.Object + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// maxErrors limits the number of errors of one result, because a thousand pods may fail for the same reason.
const maxErrors = 32

// failures collects the errors of all sources (cgroups, /proc, runtime, file systems) during one measurement.
type failures struct {
	all  []error
	more int
}

func (f *failures) addError(source, object string, err error) {
	if err == nil {
		return
	}
	if len(f.all) == maxErrors {
		f.more++
		return
	}
	f.all = append(f.all, &Error{Source: source, Object: object, Err: err})
}

// addAll adds the errors of other.
func (f *failures) addAll(other *failures) {
	f.all, f.more = append(f.all, other.all...), f.more+other.more
}

// joinErrors returns the collected errors as one error, or nil if there are none.
func (f *failures) joinErrors() error {
	if f.more > 0 {
		return errors.Join(append(f.all, errors.New("and more"))...)
	}
	return errors.Join(f.all...)
}

// isRemoved reports whether err means that a listed file or process has been removed since. Such an error is no failed
// measurement.
func isRemoved(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// hasEnded reports whether ctx has ended.
func hasEnded(ctx context.Context) bool { return ctx.Err() != nil }
