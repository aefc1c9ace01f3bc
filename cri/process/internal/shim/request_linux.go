// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cri/process/internal/procfs"
)

const (
	// acceptPause is the wait after a request that could not be accepted, as without a free descriptor.
	acceptPause = 100 * time.Millisecond
	// requestTime is how long a client may take to say what it wants.
	requestTime = 10 * time.Second
)

// serve takes requests until the shim ends. What keeps it from one is no reason to refuse the next: without requests
// there is no stop signal.
func (k *keeper) serve(listener *net.UnixListener) {
	for failing := false; ; {
		conn, err := listener.AcceptUnix()
		if err != nil {
			if !failing {
				fmt.Fprintln(os.Stderr, "accept:", err)
			}
			failing = true
			time.Sleep(acceptPause)
			continue
		}
		failing = false
		go func() {
			defer conn.Close()
			var answer reply
			if code, err := k.handle(conn); err != nil {
				answer.Error = err.Error()
			} else {
				answer.Code = code
			}
			_ = json.NewEncoder(conn).Encode(answer) // a client that left wants no answer
		}()
	}
}

// handle does what one client asks for.
func (k *keeper) handle(conn *net.UnixConn) (code int, err error) {
	_ = conn.SetReadDeadline(time.Now().Add(requestTime))
	r, files, err := receive(conn)
	_ = conn.SetReadDeadline(time.Time{})
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if err != nil {
		return 0, err
	}
	switch r.Op {
	case opSignal:
		return 0, k.signal(unix.Signal(r.Signal))
	case opKill:
		// Most containers are one group: killing it first spares a look at every process of the machine.
		if err := k.signal(unix.SIGKILL); err != nil {
			return 0, err
		}
		go k.killUntil(k.ended, leftoverTime)
		return 0, nil
	case opReopen:
		if k.log == nil {
			return 0, errors.New("the container has no log")
		}
		return 0, k.log.Reopen()
	case opExec:
		if len(files) != 2 || len(r.Argv) == 0 {
			return 0, errors.New("exec wants a command and two descriptors")
		}
		return k.exec(conn, r.Argv, files[0], files[1])
	}
	return 0, fmt.Errorf("unknown request %q", r.Op)
}

// signal sends a signal to the process group of the process.
func (k *keeper) signal(s unix.Signal) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		return nil
	}
	if err := unix.Kill(-k.main, s); err != nil {
		return os.NewSyscallError("kill", err)
	}
	return nil
}

// exec runs a command until it ends, or kills it when the client leaves.
func (k *keeper) exec(conn net.Conn, argv []string, stdout, stderr *os.File) (int, error) {
	pid, status, err := k.forkExec(argv, stdout, stderr)
	if err != nil {
		return 0, err
	}
	// The command alone holds them now, so the client sees their end with it.
	stdout.Close()
	stderr.Close()
	left := make(chan struct{})
	go func() {
		_, _ = conn.Read(make([]byte, 1)) // the client sends nothing more
		close(left)
	}()
	select {
	case s := <-status:
		return int(code(s)), nil
	case <-left:
		k.killExec(pid)
		return 0, errors.New("killed: the client left")
	}
}

// forkExec forks on the main thread and registers the child with the reaper.
func (k *keeper) forkExec(argv []string, stdout, stderr *os.File) (pid int, status chan syscall.WaitStatus, err error) {
	status = make(chan syscall.WaitStatus, 1)
	done := make(chan struct{})
	fork := func() {
		defer close(done)
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.over {
			err = ErrEnded
			return
		}
		null, openErr := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err = openErr; err != nil {
			return
		}
		defer unix.Close(null)
		if pid, err = k.fork(argv, null, int(stdout.Fd()), int(stderr.Fd())); err == nil {
			k.execs[pid] = status
		}
	}
	select {
	case k.forks <- fork:
		<-done
		return pid, status, err
	case <-k.ended:
		return 0, nil, ErrEnded
	}
}

// killExec kills a command that still runs, its process group, and its other descendants.
func (k *keeper) killExec(pid int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.execs[pid] == nil {
		return
	}
	all, err := procfs.All()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kill command:", err)
	}
	_ = unix.Kill(-pid, unix.SIGKILL)
	for _, p := range procfs.NewTree(all).Descendants(pid) {
		_ = procfs.Kill(p)
	}
}
