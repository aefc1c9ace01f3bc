// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"context"
	"errors"
	"os"
)

// Host is the machine that this program runs on. It implements nodestatus.Capacity.
type Host struct {
	// Root is the directory of the agent: the size of its file system becomes [Info.RootFS]. Empty: "/".
	Root string
}

// Machine returns the hardware and operating system of the machine. If a value cannot be read, it is zero and the error
// names it. The other values are valid nevertheless.
func (h Host) Machine(context.Context) (Info, error) {
	info, err := Read(os.DirFS("/"))
	size, failed := diskSize(cmp.Or(h.Root, "/"))
	info.RootFS = size
	return info, errors.Join(err, failed)
}
