// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"fmt"
	"os"
	"syscall"
)

// openRegular opens a file of a log. It does not wait for a pipe, which a container that has the logs of the node mounted
// can put in its place.
func openRegular(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("read log %s: it is no regular file: %s", path, info.Mode())
	}
	if err != nil {
		file.Close() // read only
		return nil, err
	}
	return file, nil
}
