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
	leftoverTime = 10 * time.Second // for what the process leaves behind to die of SIGKILL
	drainTime    = 5 * time.Second  // for the last output when something unkillable still holds the pipes
	farewellTime = 5 * time.Second  // for clients to be told
)

// keeper is the shim at work.
type keeper struct {
	dir    string
	spec   Spec
	log    *crilog.Writer // nil: output is dropped
	output sync.WaitGroup
	hub    hub    // passes output on to clients
	input  *input // of the process; nil: it has none

	sessions atomic.Int64  // that were begun
	thread   *thread       // forks
	oom      *oomScore     // of what is forked
	group    int           // descriptor of the cgroup of v2 to fork into, -1 without
	ended    chan struct{} // closed when the process has ended
	gone     chan struct{} // closed when no child is left

	mu     sync.Mutex // held while children are forked and reaped, so that a pid means what it says
	main   int        // pid of the process, until over
	over   bool
	status syscall.WaitStatus // of the process, when over
	at     time.Time          // when it ended
	execs  map[int]chan syscall.WaitStatus
}

// Main is the life of a shim. It returns the exit code of the program.
func Main(dir string) int {
	unix.Umask(0o022)
	closeOnExec(readyFD)
	// Whoever stops the agent with all its processes means the containers, which get the signal as well; the shim
	// stays to record their end. Ignoring the signals would make the containers ignore them too.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM)

	k := &keeper{
		dir:    dir,
		thread: newThread(),
		group:  -1,
		ended:  make(chan struct{}),
		gone:   make(chan struct{}),
		execs:  make(map[int]chan syscall.WaitStatus),
	}
	ready := os.NewFile(readyFD, "ready")
	run, err := k.begin()
	if err != nil {
		k.thread.end()
		_ = endCgroups(k.spec.Cgroups, cgroupTime)
		_, _ = StartFailed(dir, err)
		_ = json.NewEncoder(ready).Encode(started{Error: err.Error()})
		return 1
	}
	_ = json.NewEncoder(ready).Encode(started{Run: run}) // an agent that died meanwhile finds the record
	ready.Close()
	go debug.FreeOSMemory() // what the packages of the embedding program allocated before main
	<-k.ended
	if err := k.finish(run); err != nil {
		fmt.Fprintln(os.Stderr, "record exit:", err)
		return 1
	}
	return 0
}

// closeOnExec keeps descriptors from first on to the shim itself: its own, and what the agent was started with and
// did not mean to hand down.
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

// begin starts the process and what serves it.
func (k *keeper) begin() (run Run, err error) {
	if k.spec, err = Read[Spec](filepath.Join(k.dir, specFile)); err != nil {
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
	listener, err := listen(k.dir)
	if err != nil {
		return run, err
	}
	if k.thread.do(func() { err = k.enter() }); err != nil {
		return run, err
	}
	if err := k.start(); err != nil {
		return run, err
	}
	run.Shim, run.PID, run.At = os.Getpid(), k.main, time.Now()
	process, err := procfs.Read(k.main) // at least a zombie: it is not reaped before
	if err != nil {
		return run, err
	}
	run.Start = process.Start
	go k.reap()
	go k.serve(listener)
	if err := Write(filepath.Join(k.dir, runFile), run); err != nil {
		return run, err
	}
	return run, nil
}

func listen(dir string) (*net.UnixListener, error) {
	path, _, err := socketPath(dir) // held to the end of the shim
	if err != nil {
		return nil, err
	}
	_ = os.Remove(filepath.Join(dir, sockFile))
	return net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
}

// start forks the process.
func (k *keeper) start() error {
	files, err := k.files()
	if err == nil {
		k.main, err = k.fork(k.spec.Argv, files, nil)
	}
	files.close()
	return err
}

// fork starts a program as the leader of a session, where the container is.
func (k *keeper) fork(argv []string, files stdio, env []string) (pid int, err error) {
	k.thread.do(func() {
		k.oom.during(func() { pid, err = k.forkHere(argv, files, env) })
	})
	return pid, err
}

// forkHere is fork on the thread for it.
func (k *keeper) forkHere(argv []string, files stdio, env []string) (int, error) {
	path, err := k.lookPath(argv[0])
	if err != nil {
		return 0, err
	}
	sys := &syscall.SysProcAttr{
		Setsid: true, Setctty: files.tty, Pdeathsig: syscall.SIGKILL,
		UseCgroupFD: k.group >= 0, CgroupFD: k.group,
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

// lookPath finds a program in the PATH of the container.
func (k *keeper) lookPath(name string) (string, error) {
	for _, entry := range k.spec.Env {
		if path, ok := strings.CutPrefix(entry, "PATH="); ok {
			if err := os.Setenv("PATH", path); err != nil {
				return "", err
			}
		}
	}
	return exec.LookPath(name)
}

// reap waits for children: the process, commands run beside it, and what they orphaned.
func (k *keeper) reap() {
	defer close(k.gone)
	for {
		// The child stays a zombie, and its pid taken, until the lock is held.
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return // no child is left, so the process has ended and nothing is forked any more
		}
		k.mu.Lock()
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch exec := k.execs[pid]; {
		case err != nil || pid <= 0:
		case pid == k.main && !k.over:
			k.over, k.status, k.at = true, status, time.Now()
			close(k.ended)
		case exec != nil:
			exec <- status
			delete(k.execs, pid)
		}
		k.mu.Unlock()
	}
}

// finish kills what the process left behind, completes the log and records the end.
func (k *keeper) finish(run Run) error {
	exit := Exit{Code: code(k.status), Reason: ReasonCompleted, Started: run.At, At: k.at}
	if exit.Code != 0 {
		exit.Reason = ReasonError
	}
	if !k.killUntil(k.gone, leftoverTime) {
		exit.Message = "some processes of the container could not be killed"
	}
	drained := make(chan struct{})
	go func() { k.output.Wait(); close(drained) }()
	select {
	case <-drained:
	case <-time.After(drainTime):
	}
	k.hub.close(farewellTime)
	k.thread.end()
	if oomKilled(k.spec.Cgroups) {
		exit.Reason = ReasonOOMKilled
	}
	if err := endCgroups(k.spec.Cgroups, cgroupTime); err != nil {
		fmt.Fprintln(os.Stderr, "end cgroups:", err)
	}
	return writeExit(k.dir, exit)
}

// killUntil kills the process and its descendants, again and again, until done is closed. It returns false when
// the time is up.
func (k *keeper) killUntil(done <-chan struct{}, limit time.Duration) bool {
	deadline := time.Now().Add(limit)
	again := backoff.Policy{First: time.Millisecond, Max: 50 * time.Millisecond}
	for pause := again.First; time.Now().Before(deadline); pause = again.Next(pause) {
		select {
		case <-done:
			return true
		case <-time.After(pause): // most processes leave nothing: look only when something is still there
		}
		k.kill()
	}
	return false
}

// kill kills every descendant of the shim once. What they fork meanwhile is for the next time.
func (k *keeper) kill() {
	all, err := procfs.All()
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

// code returns an exit code as shells have it.
func code(s syscall.WaitStatus) int32 {
	if s.Signaled() {
		return 128 + int32(s.Signal())
	}
	return int32(s.ExitStatus())
}
