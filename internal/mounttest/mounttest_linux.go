// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package mounttest

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func mountDeadFUSE(t testing.TB, target string) (abort func()) {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip("this kernel has no FUSE: ", err)
	}
	data := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)
	if err := unix.Mount("dead", target, "fuse", unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		_ = unix.Close(fd)
		t.Fatal(err)
	}
	abort = sync.OnceFunc(func() { _ = unix.Close(fd) })
	t.Cleanup(func() {
		abort()
		_ = unix.Unmount(target, unix.MNT_DETACH)
	})
	return abort
}

func runUntilBlocked(t testing.TB, f func()) (returned <-chan struct{}) {
	t.Helper()
	thread, done := make(chan int, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)
		thread <- unix.Gettid()
		f()
	}()
	file := fmt.Sprintf("/proc/self/task/%d/syscall", <-thread)
	for deadline := time.Now().Add(time.Minute); ; runtime.Gosched() {
		select {
		case <-done:
			return done
		default:
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Skip("this kernel does not say what a thread waits for: ", err)
		}
		// A thread that runs has no number; one that Go has put to sleep waits for a futex.
		number, _, _ := strings.Cut(string(text), " ")
		if n, err := strconv.Atoi(strings.TrimSpace(number)); err == nil && n >= 0 && n != unix.SYS_FUTEX {
			return done
		}
		if time.Now().After(deadline) {
			t.Fatal("it neither returns nor waits")
		}
	}
}
