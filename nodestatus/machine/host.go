// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"context"
	"errors"
	"os"
)

// Host reads the machine that this program runs on. It is a nodestatus.Capacity.
type Host struct {
	// Root is a path on the file system whose size is [Info.RootFS]: the directory of the agent. Empty: "/".
	Root string
}

// Machine reads the machine. The error names the values that cannot be read; the other values are valid.
func (h Host) Machine(context.Context) (Info, error) {
	info, err := Read(os.DirFS("/"))
	size, failed := diskSize(cmp.Or(h.Root, "/"))
	info.RootFS = size
	return info, errors.Join(err, failed)
}
