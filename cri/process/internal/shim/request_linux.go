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
	// acceptPause is the pause after a failed accept, for example without a free descriptor.
	acceptPause = 100 * time.Millisecond
	// requestTimeout limits the time that a client takes to send its request.
	requestTimeout = 10 * time.Second
)

// acceptRequests serves the requests of agents until the shim exits. It continues after an error of accept, because stop signals
// arrive as requests.
func (k *shimServer) acceptRequests(listener *net.UnixListener) {
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
			if code, err := k.handleRequest(conn); err != nil {
				answer.Error = err.Error()
			} else {
				answer.Code = code
			}
			_ = json.NewEncoder(conn).Encode(answer) // a disconnected client needs no reply
		}()
	}
}

// handleRequest reads a request from the connection and executes it. If the request runs a command, it returns the exit code
// of the command.
func (k *shimServer) handleRequest(conn *net.UnixConn) (code int, err error) {
	_ = conn.SetReadDeadline(time.Now().Add(requestTimeout))
	var r request
	fds, _, err := readMessage(conn, &r)
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
		return 0, k.signalGroup(unix.Signal(r.Signal))
	case opKill:
		// Most containers consist of one process group: killing it first avoids a scan of all processes.
		if err := k.signalGroup(unix.SIGKILL); err != nil {
			return 0, err
		}
		go k.killUntil(k.processExited, killTimeout)
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
		return k.execCommand(conn, r.Argv, &fds)
	case opRun:
		return k.runSessionCommand(conn, r, &fds)
	case opAttach:
		return 0, k.attachClient(conn, r, &fds)
	}
	return 0, fmt.Errorf("unknown request %q", r.Op)
}

// signalGroup sends a signal to the process group of the container's process. It does nothing after the process has exited.
func (k *shimServer) signalGroup(sig unix.Signal) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.exited {
		return nil
	}
	if err := unix.Kill(-k.pid, sig); err != nil {
		return os.NewSyscallError("kill", err)
	}
	return nil
}

// execCommand runs a command with the client's stdout and stderr, and returns its exit code. If the client disconnects, it kills
// the command.
func (k *shimServer) execCommand(conn net.Conn, argv []string, fds *[]int) (int, error) {
	null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	*fds = append(*fds, null)
	pid, status, err := k.forkExec(argv, stdio{in: null, out: (*fds)[0], err: (*fds)[1]}, nil)
	if err != nil {
		return 0, err
	}
	return k.awaitCommand(conn, status, fds, func() { k.killExec(pid) })
}

// awaitCommand waits until a command has exited, and returns its exit code. If the client disconnects first, it calls kill.
func (k *shimServer) awaitCommand(conn net.Conn, status chan syscall.WaitStatus, fds *[]int, kill func()) (int, error) {
	// So that the client sees end of file when the command exits.
	closeAll(*fds)
	*fds = nil
	left := make(chan struct{})
	go func() {
		_, _ = conn.Read(make([]byte, 1)) // the client sends nothing before the command has exited
		close(left)
	}()
	select {
	case s := <-status:
		_ = conn.SetReadDeadline(time.Now())
		<-left // so that no other goroutine reads
		_ = conn.SetReadDeadline(time.Time{})
		return int(exitCode(s)), nil
	case <-left:
		kill()
		return 0, errors.New("killed: the client left")
	}
}

// forkExec starts a command with these streams and additional environment, and returns its PID and a channel for its exit
// status.
func (k *shimServer) forkExec(argv []string, files stdio, env []string) (pid int, status chan syscall.WaitStatus, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.exited {
		return 0, nil, ErrEnded // with the container's process
	}
	if pid, err = k.forkOnThread(argv, files, env); err != nil {
		return 0, nil, err
	}
	status = make(chan syscall.WaitStatus, 1)
	k.execs[pid] = status
	return pid, status, nil
}

// killExec kills the command with this PID, its process group and its descendants. It does nothing after the command has
// exited.
func (k *shimServer) killExec(pid int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.execs[pid] == nil {
		return
	}
	all, err := procfs.ListProcesses()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kill command:", err)
	}
	_ = unix.Kill(-pid, unix.SIGKILL)
	for _, p := range procfs.NewTree(all).Descendants(pid) {
		_ = procfs.Kill(p)
	}
}
