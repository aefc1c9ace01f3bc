// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"errors"
	"syscall"
)

// isExited reports whether err is ESRCH, which an open directory of /proc returns after its process has exited.
func isExited(err error) bool { return errors.Is(err, syscall.ESRCH) }
