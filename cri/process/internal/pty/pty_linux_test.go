// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pty_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cri/process/internal/pty"
)

// A shell has a terminal, its size and job control, and the master reports the end.
func TestOpen(t *testing.T) {
	m, s, err := pty.Open(os.Getuid())
	require.NoError(t, err)
	master, slave := os.NewFile(uintptr(m), "master"), os.NewFile(uintptr(s), "slave")
	defer master.Close()
	require.NoError(t, pty.Resize(master, 91, 17))

	cmd := exec.Command("sh", "-c", "stty size; tty; echo end > /dev/tty")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	require.NoError(t, slave.Close())
	var out strings.Builder
	buf := make([]byte, 100)
	for {
		n, err := master.Read(buf)
		out.Write(buf[:n])
		if err != nil {
			require.ErrorIs(t, err, unix.EIO)
			break
		}
	}
	require.NoError(t, cmd.Wait())
	assert.Regexp(t, `^17 91\r\n/dev/pts/\d+\r\nend\r\n$`, out.String())
	assert.Error(t, pty.Resize(slave, 1, 1), "Resize fails for a closed file")
}
