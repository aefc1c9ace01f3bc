// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cgroups"
)

// workerVariable is set in the environment of a worker: the test binary itself, as a real process that does what a Demand says.
const workerVariable = "NODETEST_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(workerVariable) != "" {
		work()
		return
	}
	os.Exit(m.Run())
}

// work reads commands: "spin N" keeps N threads busy, "burst MS" keeps one busy for this time and then lets it sleep for twice as long, again and
// again, and "memory BYTES" uses this much memory beside that of the program. It answers each with "done", and ends with its standard input.
func work() {
	debug.SetGCPercent(-1)
	fmt.Println("done")
	var used [][]byte
	var total int64
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		command, argument, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.ParseInt(argument, 10, 64)
		if err != nil {
			panic(err)
		}
		switch command {
		case "spin":
			for range n {
				go func() {
					runtime.LockOSThread()
					for { //nolint:staticcheck // it is to use a CPU
					}
				}()
			}
		case "burst":
			go burst(time.Duration(n) * time.Millisecond)
		case "memory":
			if n == total {
				break
			}
			block, err := unix.Mmap(-1, 0, int(n-total), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
			if err != nil {
				panic(err)
			}
			for i := 0; i < len(block); i += os.Getpagesize() {
				block[i] = 1
			}
			used, total = append(used, block), n
		}
		fmt.Println("done")
	}
	runtime.KeepAlive(used)
}

// burst keeps a thread busy for the time busy, lets it sleep for twice as long, and repeats.
func burst(busy time.Duration) {
	runtime.LockOSThread()
	for {
		for began := time.Now(); time.Since(began) < busy; { // use the CPU
		}
		time.Sleep(2 * busy)
	}
}

// worker is a real process in a real cgroup.
type worker struct {
	t       *testing.T
	command *exec.Cmd
	in      *os.File
	out     *bufio.Reader
}

// startWorker starts a worker in the cgroup p of cgroup v2, and waits until it runs.
func startWorker(t *testing.T, p cgroups.Path, threads int) *worker {
	t.Helper()
	dir, err := os.Open("/sys/fs/cgroup/" + string(p))
	require.NoError(t, err)
	defer dir.Close()
	in, write, err := os.Pipe()
	require.NoError(t, err)
	read, out, err := os.Pipe()
	require.NoError(t, err)
	w := &worker{t: t, command: exec.Command(os.Args[0]), in: write, out: bufio.NewReader(read)}
	w.command.Env = append(os.Environ(), workerVariable+"=1", "GOMAXPROCS="+strconv.Itoa(threads+2))
	w.command.Stdin, w.command.Stdout, w.command.Stderr = in, out, os.Stderr
	w.command.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	require.NoError(t, w.command.Start())
	_, _ = in.Close(), out.Close()
	t.Cleanup(w.stop)
	require.True(t, w.await(), "the worker does not start")
	return w
}

// stop ends the worker.
func (w *worker) stop() {
	_ = w.command.Process.Kill()
	_ = w.command.Wait()
	_ = w.in.Close()
}

// await waits for the answer to a command. It returns false if the worker has ended, because it was killed.
func (w *worker) await() bool {
	line, err := w.out.ReadString('\n')
	return err == nil && line == "done\n"
}

// send sends a command.
func (w *worker) send(format string, args ...any) {
	_, _ = fmt.Fprintf(w.in, format+"\n", args...)
}

// setOOMScoreAdj sets the oom_score_adj of the worker.
func (w *worker) setOOMScoreAdj(adj int) {
	w.t.Helper()
	path := fmt.Sprintf("/proc/%d/oom_score_adj", w.command.Process.Pid)
	require.NoError(w.t, os.WriteFile(path, []byte(strconv.Itoa(adj)), 0o600))
}

// isKilled reports whether the worker was killed.
func (w *worker) isKilled() bool {
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(w.command.Process.Pid, &status, syscall.WNOHANG, nil)
	return err != nil || pid != 0
}
