// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package memreturn

import (
	"os"
	goruntime "runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCleanMappings(t *testing.T) {
	const smaps = `00400000-01427000 r-xp 00000000 08:01 77                                 /bin/an agent
Size:              16540 kB
Rss:               15580 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
01427000-025d0000 r--p 01027000 08:01 77                                 /bin/an agent
Anonymous:             4 kB
025d0000-02667000 rw-p 021d0000 08:01 77                                 /bin/an agent
Anonymous:             0 kB
02667000-04700000 rw-p 00000000 00:00 0
Anonymous:             0 kB
7fac00000000-7fac00001000 r--p 00000000 08:01 78                         /lib/other
Anonymous:             0 kB
7fac00001000-7fac00003000 r--p 00000000 08:01 77                         /bin/an agent
Anonymous:             0 kB
7fff00000000-7fff00001000 r--p 00000000 08:01 77                         /bin/an agent
`
	require.Equal(t, []mapping{{0x400000, 0x1427000}, {0x7fac00001000, 0x7fac00003000}}, cleanMappings(smaps, "/bin/an agent"))
	require.Empty(t, cleanMappings("x-y r-xp 0 0 0 /bin/a\nAnonymous: 0 kB\n2-1 r-xp 0 0 0 /bin/a\nAnonymous: 0 kB\nAnonymous:\n", "/bin/a"))
}

// mappedFiles returns the resident file pages of this process in KiB.
func mappedFiles(t *testing.T) (kib int) {
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	for line := range strings.Lines(string(status)) {
		if value, found := strings.CutPrefix(line, "RssFile:"); found {
			kib, err = strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
			require.NoError(t, err)
		}
	}
	return kib
}

func TestUnmapProgramLowersResidentFilePages(t *testing.T) {
	_, err := os.ReadFile("/proc/self/exe") // the kernel caches the pages of the program
	require.NoError(t, err)
	before := mappedFiles(t)
	require.NoError(t, unmapProgram())
	after := mappedFiles(t)
	t.Logf("%d KiB before, %d after", before, after)
	require.Less(t, after, before)
}

func TestResidentBytesFollowsAllocationAndReturn(t *testing.T) {
	const size = 64 << 20
	before := residentBytes()
	require.Positive(t, before)
	block := make([]byte, size)
	for i := range block {
		block[i] = 1
	}
	full := residentBytes()
	require.Greater(t, full, before+size/2)
	goruntime.KeepAlive(block)
	block = nil //nolint:ineffassign,wastedassign // it is garbage
	debug.FreeOSMemory()
	require.Less(t, residentBytes(), full-size/2)
}
