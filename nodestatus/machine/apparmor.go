// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"io/fs"
)

// errNoAppArmor is returned by AppArmor. Its text is the kubelet error.
var errNoAppArmor = errors.New("AppArmor is not enabled on the host")

// AppArmor returns nil if the kernel enforces AppArmor profiles. Otherwise it returns an error with the kubelet's text. root
// is the root directory of the machine, such as os.DirFS("/"). Source: pkg/security/apparmor/validate.go.
func AppArmor(root fs.FS) error {
	if root == nil {
		return errors.New("read AppArmor: the file system is nil: hand in that of its root, on a host os.DirFS(\"/\")")
	}
	if _, err := fs.Stat(root, "sys/kernel/security/apparmor"); err != nil {
		return errNoAppArmor
	}
	enabled, err := files{root}.readFile("sys/module/apparmor/parameters/enabled")
	if err != nil || len(enabled) == 0 || enabled[0] != 'Y' {
		return errNoAppArmor
	}
	return nil
}
