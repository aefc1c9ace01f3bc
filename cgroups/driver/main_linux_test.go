// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver"
)

// TestMain also runs this binary as the process that tests put into cgroups. It starts when it reads a line.
func TestMain(m *testing.M) {
	if work := os.Getenv("NODEAGENT_TEST_WORK"); work != "" {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		os.Exit(runWork(strings.Fields(work)))
	}
	os.Exit(m.Run())
}

// runWork does the work of a process in a cgroup and returns its exit code.
func runWork(work []string) int {
	switch work[0] {
	case "sleep":
		time.Sleep(time.Hour)
	case "spin":
		for begin := time.Now(); time.Since(begin) < time.Hour; {
		}
	case "memory": // allocates the MiB, reports it and waits
		n, _ := strconv.Atoi(work[1])
		b := make([]byte, n<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		fmt.Println("taken")
		time.Sleep(time.Hour)
	case "suicide": // tries to kill and to remove its own cgroup, which must fail
		d, err := driver.Open(context.Background(), driver.Options{Root: work[1]})
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(d.Kill(context.Background(), cgroups.Path(work[2])))
		fmt.Println(d.Remove(context.Background(), cgroups.Path(work[2])))
	case "readonly": // changes cgroups on a read-only mount and prints the errors
		return readOnly(work[1], cgroups.Path(work[2]))
	case "threads": // starts the processes and reports how many succeeded
		n, _ := strconv.Atoi(work[1])
		var started int
		for range n {
			if exec.Command("sleep", "1000").Start() == nil {
				started++
			}
		}
		fmt.Println(started)
		time.Sleep(time.Hour)
	}
	return 0
}

func readOnly(root string, p cgroups.Path) int {
	const at = "/sys/fs/cgroup"
	if err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		fmt.Println(err)
		return 1
	}
	ctx := context.Background()
	d, err := driver.Open(ctx, driver.Options{Root: root})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	changed := podLimits()
	*changed.PidsMax++
	fmt.Println(d.Apply(ctx, p, podLimits()))
	fmt.Println(d.Apply(ctx, p, changed))
	fmt.Println(d.Apply(ctx, "new", podLimits()))
	fmt.Println(d.Remove(ctx, p))
	fmt.Println(d.Remove(ctx, "absent"))
	fmt.Println(d.Freeze(ctx, p))
	return 0
}

// run runs this binary in its own mount namespace and returns its output.
func run(t testing.TB, work string) string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "NODEAGENT_TEST_WORK="+work)
	cmd.Stdin = strings.NewReader("\n")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} // Go makes its mounts private
	out, err := cmd.Output()
	require.NoError(t, err, "%s", out)
	return strings.TrimSpace(string(out))
}

var cgroup atomic.Int64

// root creates a cgroup below the mount point, which is removed after the test, as Options.Root.
func root(t testing.TB) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	top, err := driver.Open(t.Context(), driver.Options{OptionalControllers: []string{"cpu", "pids"}})
	if err != nil {
		t.Skip("this host has no usable cgroups: ", err)
	}
	name := fmt.Sprintf("nodeagent-test-%d-%d", os.Getpid(), cgroup.Add(1))
	if err := top.Apply(t.Context(), cgroups.Path(name), cgroups.Resources{}); err != nil {
		require.NoError(t, top.Close())
		t.Skip("cannot create a cgroup of the test: ", err)
	}
	t.Cleanup(func() {
		require.NoError(t, top.Remove(detached(t), cgroups.Path(name)))
		require.NoError(t, top.Close())
	})
	return "/" + name
}

// openDriver returns a driver with its own root.
func openDriver(t testing.TB) *driver.Driver {
	t.Helper()
	return openAt(t, driver.Options{Root: root(t)})
}

func openAt(t testing.TB, o driver.Options) *driver.Driver {
	t.Helper()
	d, err := driver.Open(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// requireFeature skips a test if the host does not have a controller or feature.
func requireFeature(t testing.TB, d *driver.Driver, what ...string) {
	t.Helper()
	for _, w := range what {
		switch {
		case w == "v2" && d.Host().Mode != driver.V2:
			t.Skip("needs cgroup v2")
		case w == "v1" && d.Host().Mode == driver.V2:
			t.Skip("needs cgroup v1")
		case w == "pressure" && (d.Host().Mode != driver.V2 || !d.Host().Pressure):
			t.Skip("needs pressure (PSI) of cgroup v2")
		case !slices.Contains([]string{"v1", "v2", "pressure"}, w) && !d.Host().HasController(w):
			t.Skip("needs the controller ", w)
		}
	}
}

// dirs returns the directories of a cgroup, one per v1 hierarchy. On v2 there is one.
func dirs(d *driver.Driver, p cgroups.Path) []string {
	var all []string
	for _, dir := range d.Host().Dirs {
		all = append(all, filepath.Join(dir, string(p)))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// worker is a process in a cgroup.
type worker struct {
	*exec.Cmd
	out *bufio.Reader
	in  io.WriteCloser
}

// start runs this binary in a cgroup.
func start(t testing.TB, d *driver.Driver, p cgroups.Path, work string) *worker {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "NODEAGENT_TEST_WORK="+work)
	return startCommand(t, d, p, cmd)
}

// startPerl runs a Perl program in a cgroup, which forks faster than this binary.
func startPerl(t testing.TB, d *driver.Driver, p cgroups.Path, program string) *worker {
	t.Helper()
	return startCommand(t, d, p, exec.Command("perl", "-e", "<STDIN>; "+program))
}

func startCommand(t testing.TB, d *driver.Driver, p cgroups.Path, cmd *exec.Cmd) *worker {
	t.Helper()
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // without Wait: a driver under test may have left the process frozen
	for _, dir := range dirs(d, p) {
		require.NoError(t, os.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(cmd.Process.Pid)), 0))
	}
	_, err = io.WriteString(in, "\n")
	require.NoError(t, err)
	return &worker{Cmd: cmd, out: bufio.NewReader(out), in: in}
}

// requireEventually polls until ok returns true.
func requireEventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		require.True(t, time.Now().Before(end), what)
	}
}
