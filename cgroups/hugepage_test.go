// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
)

func TestHugepageSizeNames(t *testing.T) {
	for bytes, name := range map[uint64]string{
		512: "512B", 1000: "1000B", 64 << 10: "64KB", 2 << 20: "2MB", 32 << 20: "32MB", 1 << 30: "1GB", 16 << 30: "16GB",
		1 << 40: "1TB", 1 << 50: "1PB", 8 << 60: "8192PB",
	} {
		assert.Equal(t, name, cgroups.HugepageSize(bytes))
		back, err := cgroups.ParseHugepageSize(name)
		require.NoError(t, err)
		assert.Equal(t, bytes, back)
	}
	for _, bytes := range []uint64{0, 1500, 1025 << 10, math.MaxUint64} {
		assert.Empty(t, cgroups.HugepageSize(bytes), bytes)
	}
	for _, name := range []string{"", "2", "MB", "2M", "2mb", "2 MB", "2MiB", "2MBB", "2MKB", "-2MB", "+2MB", "0MB", "02MB", "2048KB", "1500B", "99999PB", "2MB\n", "../2MB"} {
		_, err := cgroups.ParseHugepageSize(name)
		assert.Error(t, err, name)
	}
}

func FuzzHugepageSize(f *testing.F) {
	f.Add(uint64(2<<20), "2MB")
	f.Add(uint64(1500), "1025KB")
	f.Fuzz(func(t *testing.T, bytes uint64, name string) {
		if text := cgroups.HugepageSize(bytes); text != "" {
			back, err := cgroups.ParseHugepageSize(text)
			require.NoError(t, err)
			assert.Equal(t, bytes, back)
		}
		if size, err := cgroups.ParseHugepageSize(name); err == nil {
			assert.Equal(t, name, cgroups.HugepageSize(size))
		}
	})
}
