// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// BootTime returns the time at which the machine booted, or zero if the kernel does not report it. root is the root directory of
// the machine, such as os.DirFS("/").
func BootTime(root fs.FS) time.Time {
	text, _ := fs.ReadFile(root, "proc/stat")
	for line := range strings.Lines(string(text)) {
		var seconds int64
		if n, _ := fmt.Sscanf(line, "btime %d", &seconds); n == 1 {
			return time.Unix(seconds, 0)
		}
	}
	return time.Time{}
}
