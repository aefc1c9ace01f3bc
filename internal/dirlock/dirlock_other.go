// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package dirlock

import (
	"errors"
	"fmt"
	"os"
)

// tryLock always fails, because this system has no flock.
func tryLock(*os.File) error { return fmt.Errorf("flock: %w", errors.ErrUnsupported) }

// hasExited is never called on this system.
func hasExited(int) bool { return false }
