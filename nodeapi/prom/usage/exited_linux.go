// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"errors"
	"syscall"
)

// isExited reports whether err is ESRCH. Reading an open directory in /proc returns it once the process has exited.
func isExited(err error) bool { return errors.Is(err, syscall.ESRCH) }
