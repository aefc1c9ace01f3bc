// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package dirlock

import (
	"errors"
	"fmt"
	"os"
)

// try fails: such a system has no flock.
func try(*os.File) error { return fmt.Errorf("flock: %w", errors.ErrUnsupported) }

// ended is not asked for a lock that nobody can have.
func ended(int) bool { return false }
