// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletstate_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// After a power failure a kubelet must find no empty file, because it would not start.
func TestFilesSyncedToDisk(t *testing.T) {
	n := newNode(t)
	s := n.open()
	s.Set(newPod("uid-a", "200m"), nil)
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	require.NoError(t, err)
	defer unix.Close(fd)
	_, err = unix.InotifyAddWatch(fd, n.dir, unix.IN_OPEN|unix.IN_ONLYDIR)
	require.NoError(t, err)
	n.run(s)()
	events := make([]byte, 64<<10)
	size, err := unix.Read(fd, events)
	require.NoError(t, err)
	// Only syncing the name of a file to disk opens the directory.
	opened := binary.NativeEndian.AppendUint32(nil, unix.IN_OPEN|unix.IN_ISDIR)
	require.Equal(t, 2, bytes.Count(events[:size], opened), "two files")
	require.Empty(t, n.log.String())
}
