// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"context"
	"errors"
	"io/fs"
	"syscall"
)

// Error is why numbers are missing, or old: which source does not have them. [errors.Is] with
// [context.DeadlineExceeded] finds out that it did not answer in time.
type Error struct {
	Source string // "cgroup", "proc", "runtime", "nodefs", "imagefs", "containerfs", "directory" or "volume"
	Object string // such as a cgroup, a file or a call; may be empty
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

// maxErrors is how many errors one answer has. A thousand pods may fail for one reason.
const maxErrors = 32

// failures are what went wrong in one pass.
type failures struct {
	all  []error
	more int
}

func (f *failures) add(source, object string, err error) {
	if err == nil {
		return
	}
	if len(f.all) == maxErrors {
		f.more++
		return
	}
	f.all = append(f.all, &Error{Source: source, Object: object, Err: err})
}

// join returns the failures as one error, nil where there are none.
func (f *failures) join() error {
	if f.more > 0 {
		return errors.Join(append(f.all, errors.New("and more"))...)
	}
	return errors.Join(f.all...)
}

// gone reports whether something was removed since it was listed, which is no failure.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }

// ended reports whether a pass has to stop.
func ended(ctx context.Context) bool { return ctx.Err() != nil }
