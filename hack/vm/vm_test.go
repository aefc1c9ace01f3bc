// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// limit is the timeout of one VM, including its boot; software emulation on a busy machine is slow.
const limit = 3 * time.Minute

func TestIntegrationUML(t *testing.T) {
	testKernel(t, "uml", "cpu io memory pids", "cpu.max memory.max memory.events pids.max cgroup.kill cgroup.freeze")
}

func TestIntegrationQEMU(t *testing.T) {
	testKernel(t, "qemu", "cpuset cpu io memory hugetlb pids rdma misc",
		"cpu.max memory.max memory.events pids.max cgroup.kill cgroup.freeze "+
			"cpuset.cpus hugetlb.2MB.max cpu.pressure memory.pressure io.pressure")
}

// testKernel runs all tests on one kernel. controllers are those of its cgroup v2, and files are the files of a child
// cgroup.
func testKernel(t *testing.T, kind, controllers, files string) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if os.Getenv("IN_TEST_VM") != "" {
		t.Skip("already in a VM")
	}
	cached, err := filepath.Glob("../../.lab/vm/" + kind + "-*")
	require.NoError(t, err)
	if len(cached) == 0 && os.Getenv("NODEAGENT_LAB") != "required" {
		t.Skipf("would install packages and download a kernel: run `hack/vm/%s true` once", kind)
	}
	k := kernel(kind)
	require.Zero(t, run(t, k.command(t, nil, "true")).status) // the first run downloads the kernel and prints a message
	t.Run("arguments, environment and streams", k.testPassesThrough)
	if kind == "uml" { // does not depend on the kernel: only on the faster one
		t.Run("exit statuses", k.testStatuses)
	} else {
		t.Run("machine", k.testMachine)
	}
	t.Run("much output", k.testMuchOutput)
	t.Run("output of a remaining process", k.testLeftBehind)
	t.Run("timeout", k.testTimeout)
	t.Run("crash", k.testCrash)
	t.Run("files", k.testFiles)
	t.Run("go test", k.testGoTest)
	t.Run("cgroups", func(t *testing.T) { k.testCgroups(t, controllers, files) })
	t.Run("overlay on overlay", k.testOverlay)
	t.Run("two VMs, one killed", k.testKilled)
	t.Run("terminated", k.testTerminated)
}

// kernel is the name of the script that runs a command on it.
type kernel string

// command prepares a command in a VM, with env added to the environment.
func (k kernel) command(t *testing.T, env []string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	script, err := filepath.Abs(string(k))
	require.NoError(t, err)
	cmd := exec.CommandContext(ctx, script, args...)
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// result is the exit status and the output of a command in a VM.
type result struct {
	status         int
	stdout, stderr string
}

func run(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); !exited {
		require.NoError(t, err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// sh runs a shell script in a VM, which must succeed, and returns its standard output.
func (k kernel) sh(t *testing.T, script string, env ...string) string {
	t.Helper()
	r := run(t, k.command(t, env, "sh", "-ec", script))
	require.Zero(t, r.status, r.stderr)
	return r.stdout
}

func (k kernel) testPassesThrough(t *testing.T) {
	cmd := k.command(t, []string{"ODD=two\nlines and \xff"}, "sh", "-c",
		`printf '%s|' "$@" "$ODD" "$PWD" "$TMPDIR" "$IN_TEST_VM"; cat; echo words >&2; exit 7`,
		"sh", "a  b", "c\nd", "", "$HOME*")
	cmd.Dir = t.TempDir()
	cmd.Stdin = strings.NewReader("not passed on")

	r := run(t, cmd)

	assert.Equal(t, 7, r.status)
	assert.Equal(t, "a  b|c\nd||$HOME*|two\nlines and \xff|"+cmd.Dir+"|/vm/tmp|1|", r.stdout)
	assert.Equal(t, "words\n", r.stderr)
}

func (k kernel) testStatuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		args   []string
		status int
		stderr string
	}{
		{"killed", []string{"sh", "-c", "kill -KILL $$"}, 137, "vm: sh: killed by signal: killed\n"},
		{"not found", []string{"no-such-program"}, 127, `vm: exec: "no-such-program": executable file not found in $PATH` + "\n"},
		{"not executable", []string{"/etc/passwd"}, 126, `vm: exec: "/etc/passwd": permission denied` + "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, result{c.status, "", c.stderr}, run(t, k.command(t, nil, c.args...)))
		})
	}
}

// Both streams at the same time, standard error through a second open of /dev/stderr.
func (k kernel) testMuchOutput(t *testing.T) {
	const size = 10 << 20
	r := run(t, k.command(t, nil, "sh", "-ec",
		fmt.Sprintf("head -c %d /dev/urandom | tee /dev/stderr | sha256sum >/vm/sum; head -c %[1]d /dev/zero; cat /vm/sum", size)))
	require.Zero(t, r.status)
	require.Len(t, r.stderr, size)
	zeros, sum := r.stdout[:size], r.stdout[size:]
	assert.Empty(t, strings.Trim(zeros, "\x00"))
	assert.Equal(t, fmt.Sprintf("%x  -\n", sha256.Sum256([]byte(r.stderr))), sum)
}

// A process that survives the command and keeps its output open does not delay the end of the VM, and no output is lost.
func (k kernel) testLeftBehind(t *testing.T) {
	began := time.Now()
	assert.Equal(t, "done\n", k.sh(t, "setsid sleep 1000 & echo done"))
	assert.Less(t, time.Since(began), 2*time.Minute, "waited for a process to close its output")
}

func (k kernel) testTimeout(t *testing.T) {
	r := run(t, k.command(t, []string{"VM_TIMEOUT=2"}, "sleep", "1000"))
	assert.Equal(t, 124, r.status)
	assert.Contains(t, r.stderr, "vm: the VM was ended after VM_TIMEOUT, 2s; end of its console:\n")
}

// After a kernel panic, the output so far is complete and the error has the end of the console.
func (k kernel) testCrash(t *testing.T) {
	r := run(t, k.command(t, nil, "sh", "-c", "echo begun; echo 1 >/proc/sys/kernel/sysrq; echo c >/proc/sysrq-trigger; sleep 1000"))
	assert.Equal(t, 125, r.status)
	assert.Equal(t, "begun\n", r.stdout)
	assert.Contains(t, r.stderr, "vm: the VM ended without an exit status")
	assert.Contains(t, r.stderr, "sysrq triggered crash")
}

// The VM reads the machine's files. Its writes stay in the VM, except those below VM_RW.
func (k kernel) testFiles(t *testing.T) {
	shared, other := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(other, "read"), []byte("from outside"), 0o600))

	got := k.sh(t, `cat "$OTHER/read"; echo changed >"$OTHER/read"; echo new >"$OTHER/new"; cat "$OTHER/new"
		echo from inside >"$VM_RW/written"
		if [ $KIND = uml ]; then mkdir /vm/host; mount -t hostfs -o / none /vm/host; ! touch "/vm/host$OTHER/past" 2>/vm/why; fi`,
		"VM_RW="+shared, "OTHER="+other, "KIND="+string(k))

	assert.Equal(t, "from outsidenew\n", got)
	written, err := os.ReadFile(filepath.Join(shared, "written"))
	require.NoError(t, err)
	assert.Equal(t, "from inside\n", string(written))
	assert.Equal(t, []string{"read"}, names(t, other))
	read, err := os.ReadFile(filepath.Join(other, "read"))
	require.NoError(t, err)
	assert.Equal(t, "from outside", string(read))
}

func names(t *testing.T, dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (k kernel) testGoTest(t *testing.T) {
	script, err := filepath.Abs(string(k))
	require.NoError(t, err)
	out := t.TempDir()
	goTest := func(env string) result {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		// Without -race and -cover, which may be in the GOFLAGS of this test.
		cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-exec="+script, "-coverprofile="+out+"/cover.out",
			"-cpuprofile=cpu.out", "-outputdir="+out, "-o="+out+"/trivial.test", "./testdata/trivial")
		cmd.Env = append(os.Environ(), "GOFLAGS=", env)
		return run(t, cmd)
	}

	r := goTest("TRIVIAL=pass")
	require.Zero(t, r.status, r.stdout+r.stderr)
	assert.Contains(t, r.stdout, "coverage: 100.0% of statements")
	cover, err := os.ReadFile(filepath.Join(out, "cover.out"))
	require.NoError(t, err)
	assert.Contains(t, string(cover), "trivial.go:8.19,8.32 1 1")
	assert.Contains(t, names(t, out), "cpu.out")
	assert.NotContains(t, names(t, "testdata/trivial"), "scratch")

	r = goTest("TRIVIAL=fail")
	assert.Equal(t, 1, r.status)
	assert.Contains(t, r.stdout, "--- FAIL: TestAnswer")
}

func (k kernel) testCgroups(t *testing.T, controllers, files string) {
	got := k.sh(t, `cd /sys/fs/cgroup
		cat cgroup.controllers cgroup.subtree_control
		mkdir a
		for f in $FILES; do cat a/$f >/dev/null && printf '%s ' $f; done; echo
		echo 33554432 >a/memory.max; cat a/memory.max
		echo -999 >/proc/self/oom_score_adj; cat /proc/self/oom_score_adj`,
		"FILES="+strings.ReplaceAll(files, "cgroup.kill ", "")) // cgroup.kill is write-only
	lines := strings.Split(got, "\n")
	assert.Equal(t, controllers, lines[0])
	assert.Equal(t, controllers, lines[1])
	assert.Equal(t, strings.ReplaceAll(files, "cgroup.kill ", ""), strings.TrimSpace(lines[2]))
	assert.Equal(t, "33554432", lines[3])
	assert.Equal(t, "-999", lines[4])
}

// The kernel finds the sockets, NUMA nodes, cores and threads of VM_MACHINE.
func (k kernel) testMachine(t *testing.T) {
	got := k.sh(t, `cd /sys/devices/system/node
		cat online
		for cpu in 0 1 2 3 4 5 6 7; do
			topology=/sys/devices/system/cpu/cpu$cpu/topology
			echo cpu $cpu socket $(cat $topology/physical_package_id) core $(cat $topology/core_id) threads $(cat $topology/thread_siblings_list)
		done
		for node in 0 1; do
			set -- $(grep MemTotal node$node/meminfo)
			echo node $node cpus $(cat node$node/cpulist) MiB $(($4 / 1024))
		done`, "VM_MACHINE=2 sockets 2 nodes 2 cores 2 threads 320 MiB")
	lines := strings.Split(strings.TrimSpace(got), "\n")
	require.Len(t, lines, 1+8+2, got)
	assert.Equal(t, "0-1", lines[0])
	assert.Equal(t, []string{
		"cpu 0 socket 0 core 0 threads 0-1", "cpu 1 socket 0 core 0 threads 0-1",
		"cpu 2 socket 0 core 1 threads 2-3", "cpu 3 socket 0 core 1 threads 2-3",
		"cpu 4 socket 1 core 0 threads 4-5", "cpu 5 socket 1 core 0 threads 4-5",
		"cpu 6 socket 1 core 1 threads 6-7", "cpu 7 socket 1 core 1 threads 6-7",
	}, lines[1:9])
	for node, cpus := range []string{"0-3", "4-7"} {
		text, found := strings.CutPrefix(lines[9+node], fmt.Sprintf("node %d cpus %s MiB ", node, cpus))
		require.True(t, found, lines[9+node])
		memory, err := strconv.Atoi(text)
		require.NoError(t, err)
		assert.InDelta(t, 290, memory, 30, "320 MiB without the memory of the kernel itself")
	}
}

// The mounts of containerd's overlay snapshotter, in the directories of a lab and of tests.
func (k kernel) testOverlay(t *testing.T) {
	lab, err := filepath.Abs("../../.lab/instances")
	require.NoError(t, err)
	k.sh(t, `for dir in "$TMPDIR" /run "$LAB"; do
			mkdir "$dir/l" "$dir/u" "$dir/w" "$dir/m"
			mount -t overlay o -o "lowerdir=$dir/l,upperdir=$dir/u,workdir=$dir/w" "$dir/m"
			touch "$dir/m/file"; test -e "$dir/u/file"
		done`, "LAB="+lab)
}

// The first VM runs while the second one starts and ends. Then the first is killed, without a chance to clean up.
func (k kernel) testKilled(t *testing.T) {
	cmd, first := k.start(t)
	require.NotEmpty(t, first.processes())
	assert.Equal(t, "second\n", k.sh(t, "echo second"))
	require.NotEmpty(t, first.processes())

	require.NoError(t, cmd.Process.Kill())
	assert.Error(t, cmd.Wait())
	first.requireGone(t)
}

func (k kernel) testTerminated(t *testing.T) {
	cmd, vm := k.start(t)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	assert.Error(t, cmd.Wait())
	assert.Equal(t, 128+int(syscall.SIGTERM), cmd.ProcessState.ExitCode())
	vm.requireGone(t)
}

// start starts a VM that keeps running, and returns when its command runs.
func (k kernel) start(t *testing.T) (*exec.Cmd, pidNamespace) {
	cmd := k.command(t, nil, "sh", "-c", "echo up; sleep 1000")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line := make([]byte, 3)
	_, err = io.ReadFull(stdout, line) // output arrives before the VM ends
	require.NoError(t, err)
	require.Equal(t, "up\n", string(line))

	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
	require.NoError(t, err)
	require.Len(t, strings.Fields(string(children)), 1)
	namespace, err := os.Readlink("/proc/" + strings.Fields(string(children))[0] + "/ns/pid")
	require.NoError(t, err)
	own, err := os.Readlink("/proc/self/ns/pid")
	require.NoError(t, err)
	require.NotEqual(t, own, namespace)
	return cmd, pidNamespace(namespace)
}

// pidNamespace is the name of a PID namespace in /proc, such as pid:[4026531836].
type pidNamespace string

// processes returns the processes in the namespace. Zombies have no namespace and are omitted.
func (n pidNamespace) processes() (pids []int) {
	links, _ := filepath.Glob("/proc/[0-9]*/ns/pid")
	for _, link := range links {
		if name, err := os.Readlink(link); err == nil && name == string(n) {
			pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
			pids = append(pids, pid)
		}
	}
	return pids
}

// requireGone waits until all processes of a VM have exited, and checks that no job file or mount remains.
func (n pidNamespace) requireGone(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); len(n.processes()) > 0; time.Sleep(10 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "processes still running: %v", n.processes())
	}
	job, err := filepath.Abs("../../.lab/vm/job")
	require.NoError(t, err)
	assert.Empty(t, names(t, job))
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	assert.NotContains(t, string(mounts), job)
}
