// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"testing/fstest"

	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

// Some files of a machine. An agent passes os.DirFS("/").
func ExampleRead() {
	info, err := machine.Read(fstest.MapFS{
		"etc/os-release":                 {Data: []byte("PRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\n")},
		"proc/meminfo":                   {Data: []byte("MemTotal: 4194304 kB\n")},
		"proc/sys/kernel/random/boot_id": {Data: []byte("b1\n")},
		"sys/devices/system/cpu/online":  {Data: []byte("0-3\n")},
	})
	fmt.Println(info.OSImage, info.CPUs, info.Memory>>30, "GiB")
	fmt.Println(err)
	// Output:
	// Debian GNU/Linux 13 (trixie) 4 4 GiB
	// read machine: open proc/sys/kernel/osrelease: file does not exist
}
