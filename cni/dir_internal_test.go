// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A partly written file must not change the network of pods.
func TestLoadKeepsLastGoodVersionOfPartialFile(t *testing.T) {
	dir := t.TempDir()
	path, now := filepath.Join(dir, "1.conflist"), time.Now()
	write := func(content string, age time.Duration) {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		require.NoError(t, os.Chtimes(path, now.Add(-age), now.Add(-age)))
	}
	d := NewDir(dir)
	write(`{"name":`, 0)
	_, err := d.loadFile(path, now)
	require.Error(t, err, "a file without a previous good version is an error")

	write(`{"name":"n","plugins":[{"type":"a"}]}`, 0)
	require.Len(t, d.Load().Networks, 1)
	for age, bad := range map[time.Duration]bool{0: false, partialWriteAge / 2: false, partialWriteAge: true, time.Hour: true, -time.Hour: true} {
		write(`{"name":`, age)
		n, err := d.loadFile(path, now)
		require.Equal(t, bad, err != nil, "age %v", age)
		if !bad {
			require.Equal(t, "n", n.Name)
		}
	}
}
