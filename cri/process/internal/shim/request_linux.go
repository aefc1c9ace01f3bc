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
			answer := reply{Version: protocol}
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
	var r request
	fds, _, err := readWith(conn, &r)
	_ = conn.SetReadDeadline(time.Time{})
	defer func() { closeAll(fds) }()
	if err != nil {
		return 0, err
	}
	if r.Version > protocol {
		return 0, fmt.Errorf("request %q takes protocol %d, and this shim has %d", r.Op, r.Version, protocol)
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
		if len(fds) != 2 || len(r.Argv) == 0 {
			return 0, errors.New("exec wants a command and two descriptors")
		}
		return k.exec(conn, r.Argv, &fds)
	case opRun:
		return k.run(conn, r, &fds)
	case opAttach:
		return 0, k.attach(conn, r, &fds)
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

// exec runs a command until it ends, or kills it when the client leaves. It takes the descriptors for stdout and stderr.
func (k *keeper) exec(conn net.Conn, argv []string, fds *[]int) (int, error) {
	null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	*fds = append(*fds, null)
	pid, status, err := k.forkExec(argv, stdio{in: null, out: (*fds)[0], err: (*fds)[1]}, nil)
	if err != nil {
		return 0, err
	}
	return k.await(conn, status, fds, func() { k.killExec(pid) })
}

// await waits for a command, which alone has its descriptors from now on, so that the client sees their end with it. It kills
// the command when the client leaves.
func (k *keeper) await(conn net.Conn, status chan syscall.WaitStatus, fds *[]int, kill func()) (int, error) {
	closeAll(*fds)
	*fds = nil
	left := make(chan struct{})
	go func() {
		_, _ = conn.Read(make([]byte, 1)) // the client sends nothing more before the command has ended
		close(left)
	}()
	select {
	case s := <-status:
		_ = conn.SetReadDeadline(time.Now())
		<-left // so that nobody else reads
		_ = conn.SetReadDeadline(time.Time{})
		return int(code(s)), nil
	case <-left:
		kill()
		return 0, errors.New("killed: the client left")
	}
}

// forkExec forks a command and registers it with the reaper. env is added to that of the container.
func (k *keeper) forkExec(argv []string, files stdio, env []string) (pid int, status chan syscall.WaitStatus, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		return 0, nil, ErrEnded
	}
	if pid, err = k.fork(argv, files, env); err != nil {
		return 0, nil, err
	}
	status = make(chan syscall.WaitStatus, 1)
	k.execs[pid] = status
	return pid, status, nil
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
