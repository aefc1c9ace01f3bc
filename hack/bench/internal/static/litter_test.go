// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package static

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestMountsBelow(t *testing.T) {
	const mountinfo = `22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:25 / /tmp/bench-1/root rw shared:3 - ext4 /dev/vda rw
31 30 0:26 / /tmp/bench-1/root/pods/a\040b rw - tmpfs tmpfs rw
32 22 0:27 / /tmp/bench-12 rw - tmpfs tmpfs rw
33 22 0:28 / /tmp/bench-1/root rw - tmpfs tmpfs rw
`
	assert.Equal(t, []string{"/tmp/bench-1/root/pods/a b", "/tmp/bench-1/root", "/tmp/bench-1/root"},
		mountsBelow(mountinfo, "/tmp/bench-1"), "deepest first; a path with two mounts appears twice; neighbours are excluded")
	assert.Empty(t, mountsBelow(mountinfo, "/elsewhere"))
}
