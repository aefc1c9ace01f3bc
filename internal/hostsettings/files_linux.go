// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hostsettings

import "golang.org/x/sys/unix"

// setOpenFiles sets the soft and the hard limit of open files of this process and of the processes that it starts.
func setOpenFiles(files uint64) error {
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: files, Max: files})
}
