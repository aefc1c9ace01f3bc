// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"errors"
	"syscall"
)

// exited reports whether an error says that there is no such process any more, which /proc says of an open directory.
func isExited(err error) bool { return errors.Is(err, syscall.ESRCH) }
