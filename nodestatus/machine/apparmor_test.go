// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"

	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

func TestAppArmorReturnsErrorUnlessEnabled(t *testing.T) {
	const dir, enabled = "sys/kernel/security/apparmor", "sys/module/apparmor/parameters/enabled"
	directory := &fstest.MapFile{Mode: fs.ModeDir | 0o755}
	for name, test := range map[string]struct {
		root fstest.MapFS
		want bool
	}{
		"enabled":             {fstest.MapFS{dir: directory, enabled: {Data: []byte("Y\n")}}, true},
		"disabled":            {fstest.MapFS{dir: directory, enabled: {Data: []byte("N\n")}}, false},
		"not enabled at boot": {fstest.MapFS{enabled: {Data: []byte("Y\n")}}, false},
		"not in the kernel":   {fstest.MapFS{dir: directory}, false},
		"empty file":          {fstest.MapFS{dir: directory, enabled: {}}, false},
	} {
		err := machine.AppArmor(test.root)
		if test.want {
			assert.NoError(t, err, name)
		} else {
			assert.EqualError(t, err, "AppArmor is not enabled on the host", name)
		}
	}
	assert.ErrorContains(t, machine.AppArmor(nil), "the file system is nil")
}
