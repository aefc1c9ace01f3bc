// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"path/filepath"
)

// Limits of the fields of a [Device].
const (
	maxDeviceName = 1 << 10
	maxDeviceData = 16 << 10
)

// Validate returns an error for an empty name, a field that is too long, and a directory that is not below the directory of the plugins.
func (d *Device) Validate() error {
	size := 0
	for k, v := range d.Data {
		size += len(k) + len(v)
	}
	switch {
	case d.Name == "" || len(d.Name) > maxDeviceName:
		return fmt.Errorf("device %.256q has no valid name", d.Name)
	case size > maxDeviceData:
		return fmt.Errorf("device %q: more than %d bytes of data", d.Name, maxDeviceData)
	}
	for _, dir := range []string{d.Dir, d.MapDir} {
		if dir != "" && (!filepath.IsLocal(dir) || dir != filepath.Clean(dir)) {
			return fmt.Errorf("device %q: directory %.256q is not below that of the plugins", d.Name, dir)
		}
	}
	return nil
}
