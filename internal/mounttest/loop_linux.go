// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package mounttest

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

func createLoopDevice(t testing.TB, size int64) string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err == nil {
		err = file.Truncate(size)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		t.Skip("this node has no loop devices: ", err)
	}
	defer control.Close()
	for range 16 {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			t.Fatal(err)
		}
		path := "/dev/loop" + strconv.Itoa(n)
		loop, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Skip("this node has no free loop device: ", err)
		}
		err = unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_SET_FD, int(file.Fd()))
		if errors.Is(err, unix.EBUSY) { // others were faster
			_ = loop.Close()
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_CLR_FD, 0); err != nil {
				t.Errorf("detach %s: %v", path, err)
			}
			_ = loop.Close()
		})
		return path
	}
	t.Fatal("other programs take all free loop devices")
	return ""
}
