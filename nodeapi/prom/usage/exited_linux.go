// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"errors"
	"syscall"
)

// isExited reports whether err is ESRCH: an open directory in /proc cannot be read any more after the process has exited.
func isExited(err error) bool { return errors.Is(err, syscall.ESRCH) }
