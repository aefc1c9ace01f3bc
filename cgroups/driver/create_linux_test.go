// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"
)

func TestRetryCreateAfterConcurrentRemoval(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name  string
		fails []error // error of each attempt; later attempts succeed
		calls int
		err   error
	}{
		{"at once", nil, 1, nil},
		{"no file", []error{&fileError{"pids.max", unix.ENOENT}}, 2, nil},
		{"no device, no directory, no CPUs", []error{unix.ENODEV, fs.ErrNotExist, errNoCPUs}, 4, nil},
		{"never", []error{unix.ENOENT, unix.ENOENT, unix.ENOENT, unix.ENOENT, unix.ENOENT, unix.ENOENT}, maxAttempts, unix.ENOENT},
		{"another error", []error{unix.ENOENT, broken, broken}, 2, broken},
	} {
		calls := 0
		err := retryCreate(t.Context(), func() error {
			calls++
			if calls <= len(c.fails) {
				return fmt.Errorf("write: %w", c.fails[calls-1])
			}
			return nil
		})
		assert.ErrorIs(t, err, c.err, c.name)
		assert.Equal(t, c.calls, calls, c.name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, retryCreate(ctx, func() error { return unix.ENOENT }), context.Canceled)
}
