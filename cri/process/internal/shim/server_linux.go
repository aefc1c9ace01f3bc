// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cri/process/internal/crilog"
	"github.com/seed81659283/nodeagent/cri/process/internal/procfs"
	"github.com/seed81659283/nodeagent/internal/backoff"
)

const (
	killTimeout    = 10 * time.Second // time for remaining processes to exit after SIGKILL
	drainTimeout   = 5 * time.Second  // time for the last output if an unkillable process still holds the pipes
	goodbyeTimeout = 5 * time.Second  // time to notify attached clients
)

// shimServer is the state of a running shim.
type shimServer struct {
	dir    string // directory of the container
	spec   Spec
	log    *crilog.Writer // nil: output is dropped
	output sync.WaitGroup
	hub    outputHub     // copies output to attached clients
	input  *processInput // stdin of the process; nil: it has none

	sessions       atomic.Int64  // number of session commands started
	thread         *forkThread   // forks processes
	oom            *oomScore     // OOM score adjustment of forked processes
	cgroupFD       int           // descriptor of the v2 cgroup to fork into; -1: none
	processExited  chan struct{} // closed when the process has exited
	childrenReaped chan struct{} // closed when no child is left

	mu       sync.Mutex // held while children are forked and reaped, so that PIDs are not reused
	pid      int        // PID of the process, valid until exited is true
	exited   bool
	status   syscall.WaitStatus // of the process, after its exit
	exitTime time.Time          // when the process exited
	execs    map[int]chan syscall.WaitStatus
}

// Main runs the shim of the container with directory dir. It starts the container's process and serves requests of agents.
// When the process has exited, Main writes the exit record and returns the exit code of the shim.
func Main(dir string) int {
	unix.Umask(0o022)
	closeOnExec(readyFD)
	// Signals to the agent's process group also reach the containers. The shim stays to record their exit. It handles the signals
	// rather than ignoring them, because the containers would inherit ignored signals.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM)

	k := &shimServer{
		dir:            dir,
		thread:         newThread(),
		cgroupFD:       -1,
		processExited:  make(chan struct{}),
		childrenReaped: make(chan struct{}),
		execs:          make(map[int]chan syscall.WaitStatus),
	}
	ready := os.NewFile(readyFD, "ready")
	run, err := k.startContainer()
	if err != nil {
		k.thread.stopThread()
		_ = killAndRemoveCgroups(k.spec.Cgroups, cgroupTimeout)
		_, _ = RecordStartFailure(dir, err)
		_ = json.NewEncoder(ready).Encode(startReport{Error: err.Error()})
		return 1
	}
	_ = json.NewEncoder(ready).Encode(startReport{Run: run}) // an agent that died meanwhile finds the record
	ready.Close()
	go debug.FreeOSMemory() // memory that packages of the embedding program allocated before main
	<-k.processExited
	if err := k.recordExit(run); err != nil {
		fmt.Fprintln(os.Stderr, "record exit:", err)
		return 1
	}
	return 0
}

// closeOnExec sets the flag close-on-exec on all descriptors from first on, including those inherited from the agent by mistake.
func closeOnExec(first int) {
	if unix.CloseRange(uint(first), math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	open, err := os.ReadDir("/proc/self/fd") // before Linux 5.11
	if err != nil {
		fmt.Fprintln(os.Stderr, "list descriptors:", err)
	}
	for _, entry := range open {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd >= first {
			unix.CloseOnExec(fd)
		}
	}
}

// startContainer starts the container's process, the reaper of child processes and the server for requests of agents.
func (k *shimServer) startContainer() (run Run, err error) {
	if k.spec, err = ReadRecord[Spec](filepath.Join(k.dir, specFile)); err != nil {
		return run, err
	}
	if run.Boot, err = procfs.BootID(); err != nil {
		return run, err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return run, os.NewSyscallError("prctl", err)
	}
	if k.spec.Log != "" {
		if k.log, err = crilog.Open(k.spec.Log); err != nil {
			return run, fmt.Errorf("open log: %w", err)
		}
	}
	listener, err := listenRequests(k.dir)
	if err != nil {
		return run, err
	}
	if k.thread.runOnThread(func() { err = k.enterEnvironment() }); err != nil {
		return run, err
	}
	if err := k.forkProcess(); err != nil {
		return run, err
	}
	run.Shim, run.PID, run.At = os.Getpid(), k.pid, time.Now()
	process, err := procfs.ReadProcess(k.pid) // not yet reaped, so that it is at least a zombie
	if err != nil {
		return run, err
	}
	run.Start = process.Start
	go k.reapChildren()
	go k.acceptRequests(listener)
	if err := WriteRecord(filepath.Join(k.dir, runFile), run); err != nil {
		return run, err
	}
	return run, nil
}

func listenRequests(dir string) (*net.UnixListener, error) {
	path, _, err := socketPath(dir) // kept open until the shim exits
	if err != nil {
		return nil, err
	}
	_ = os.Remove(filepath.Join(dir, sockFile))
	return net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
}

// forkProcess starts the process of the container.
func (k *shimServer) forkProcess() error {
	files, err := k.openStdio()
	if err == nil {
		k.pid, err = k.forkOnThread(k.spec.Argv, files, nil)
	}
	files.close()
	return err
}

// forkOnThread starts a program as a session leader, on the thread that is in the namespaces and cgroups of the container.
func (k *shimServer) forkOnThread(argv []string, files stdio, env []string) (pid int, err error) {
	k.thread.runOnThread(func() {
		k.oom.callAdjusted(func() { pid, err = k.forkHere(argv, files, env) })
	})
	return pid, err
}

// forkHere starts a program as a session leader, on the calling thread. The caller must be on the fork thread.
func (k *shimServer) forkHere(argv []string, files stdio, env []string) (int, error) {
	path, err := k.lookPath(argv[0])
	if err != nil {
		return 0, err
	}
	sys := &syscall.SysProcAttr{
		Setsid: true, Setctty: files.tty, Pdeathsig: syscall.SIGKILL,
		UseCgroupFD: k.cgroupFD >= 0, CgroupFD: k.cgroupFD,
	}
	if u := k.spec.User; u != nil {
		sys.Credential = &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
	}
	pid, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Env:   slices.Concat(k.spec.Env, env),
		Files: []uintptr{uintptr(files.in), uintptr(files.out), uintptr(files.err)},
		Sys:   sys,
	})
	if err != nil {
		return 0, &os.PathError{Op: "exec", Path: path, Err: err}
	}
	return pid, nil
}

// lookPath returns the path of a program. It searches for a plain name in the PATH of the container.
func (k *shimServer) lookPath(name string) (string, error) {
	for _, entry := range k.spec.Env {
		if path, ok := strings.CutPrefix(entry, "PATH="); ok {
			if err := os.Setenv("PATH", path); err != nil {
				return "", err
			}
		}
	}
	return exec.LookPath(name)
}

// reapChildren waits until all child processes have exited, and records the exit status of the container's process and of
// commands.
func (k *shimServer) reapChildren() {
	defer close(k.childrenReaped)
	for {
		// The child stays a zombie, and its PID reserved, until the lock is held.
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return // no child is left: the process has exited and nothing is forked any more
		}
		k.mu.Lock()
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch exec := k.execs[pid]; {
		case err != nil || pid <= 0:
		case pid == k.pid && !k.exited:
			k.exited, k.status, k.exitTime = true, status, time.Now()
			close(k.processExited)
		case exec != nil:
			exec <- status
			delete(k.execs, pid)
		}
		k.mu.Unlock()
	}
}

// recordExit writes the exit record of the container's process, after the remaining processes are killed and their output is
// written.
func (k *shimServer) recordExit(started Run) error {
	exit := Exit{Code: exitCode(k.status), Reason: ReasonCompleted, Started: started.At, At: k.exitTime}
	if exit.Code != 0 {
		exit.Reason = ReasonError
	}
	if !k.killUntil(k.childrenReaped, killTimeout) {
		exit.Message = "some processes of the container could not be killed"
	}
	drained := make(chan struct{})
	go func() { k.output.Wait(); close(drained) }()
	select {
	case <-drained:
	case <-time.After(drainTimeout):
	}
	k.hub.closeClients(goodbyeTimeout)
	k.thread.stopThread()
	if wasOOMKilled(k.spec.Cgroups) {
		exit.Reason = ReasonOOMKilled
	}
	if err := killAndRemoveCgroups(k.spec.Cgroups, cgroupTimeout); err != nil {
		fmt.Fprintln(os.Stderr, "end cgroups:", err)
	}
	return writeExit(k.dir, exit)
}

// killUntil kills all descendants of the shim until the channel done is closed. At the time limit it returns false.
func (k *shimServer) killUntil(done <-chan struct{}, limit time.Duration) (closed bool) {
	deadline := time.Now().Add(limit)
	again := backoff.Policy{First: time.Millisecond, Max: 50 * time.Millisecond}
	for pause := again.First; time.Now().Before(deadline); pause = again.Next(pause) {
		select {
		case <-done:
			return true
		case <-time.After(pause): // usually no process remains: scan only after a pause
		}
		k.killDescendants()
	}
	return false
}

// killDescendants sends SIGKILL to every descendant of the shim. Processes that start during the call may survive.
func (k *shimServer) killDescendants() {
	all, err := procfs.ListProcesses()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kill:", err)
		return
	}
	for _, p := range procfs.NewTree(all).Descendants(os.Getpid()) {
		if err := procfs.Kill(p); err != nil {
			fmt.Fprintln(os.Stderr, "kill:", err)
		}
	}
}

// exitCode returns the exit code of a process with this status. If signal n killed the process, the exit code is 128+n, as
// in shells.
func exitCode(status syscall.WaitStatus) int32 {
	if status.Signaled() {
		return 128 + int32(status.Signal())
	}
	return int32(status.ExitStatus())
}
