// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// MaxPIDs returns how many processes and threads the machine can have. It is the lower of kernel.pid_max and
// kernel.threads-max. The argument proc is normally os.DirFS("/proc").
func MaxPIDs(proc fs.FS) (int64, error) {
	var least int64
	for i, name := range []string{"sys/kernel/pid_max", "sys/kernel/threads-max"} {
		text, err := fs.ReadFile(proc, name)
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", name, err)
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil || n <= 0 {
			return 0, fmt.Errorf("read %s: %.40q is not a positive number", name, text)
		}
		if i == 0 || n < least {
			least = n
		}
	}
	return least, nil
}
