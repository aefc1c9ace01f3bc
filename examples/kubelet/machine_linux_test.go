// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/exetest"
)

// hierarchies matches the directories of the cgroup v1 hierarchies.
const hierarchies = "/sys/fs/cgroup/*"

// machine has its own files, processes, network and cgroups, and runs a containerd. kubeadm finds all files at the usual paths. testdata/machine.sh
// is its process 1, and testdata/systemctl takes the place of systemd.
type machine struct {
	t    *testing.T
	name string // host name
	init int    // process ID of process 1 on the host
	// cgroup is the name of the machine's cgroup in each hierarchy of the host.
	cgroup string
	bin    string // directory of the programs that make cluster-tools builds
}

// newMachine starts a machine on which program is installed as the kubelet. The machine is removed when the test ends.
func newMachine(t *testing.T, name, program, bin string) *machine {
	t.Helper()
	m := &machine{t: t, name: name, bin: bin, cgroup: fmt.Sprintf("nodeagent-kubeadm-%d-%s", os.Getpid(), name)}
	m.createCgroups()
	source, err := os.Getwd()
	require.NoError(t, err)
	cmd := exec.Command("sh", "-c", joinCgroups+`exec unshare --mount --uts --ipc --net --pid --cgroup --fork --kill-child=SIGKILL "$@"`,
		m.cgroup, filepath.Join(source, "testdata", "machine.sh"), name, t.TempDir(), bin, program, source)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // also if the test process is killed
	p := exetest.StartCommand(t, cmd)
	p.AwaitLine(time.Minute, "machine "+name+" is ready")
	children, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", p.PID()))
	require.NoError(t, err)
	m.init, err = strconv.Atoi(strings.TrimSpace(string(children)))
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			out, err := m.try("sh", "-c", "tail -n 200 /var/log/kubelet.log; tail -n 20 /var/log/containerd.log")
			t.Logf("end of the logs of machine %s: %v\n%s", name, err, out)
		}
	})
	return m
}

// joinCgroups is a shell command that moves the shell into the cgroups called $0.
const joinCgroups = `for dir in ` + hierarchies + `; do echo $$ >"$dir/$0/cgroup.procs" || exit; done; `

// createCgroups creates the cgroups of the machine. They are removed when the test ends.
func (m *machine) createCgroups() {
	m.t.Helper()
	dirs, err := filepath.Glob(hierarchies)
	require.NoError(m.t, err)
	for _, dir := range dirs {
		own := filepath.Join(dir, m.cgroup)
		require.NoError(m.t, os.Mkdir(own, 0o755))
		m.t.Cleanup(func() { exetest.Eventually(m.t, time.Minute, func() error { return removeTree(own) }) })
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // no process may join the cgroup before both are set
			if text, err := os.ReadFile(filepath.Join(dir, file)); err == nil {
				require.NoError(m.t, os.WriteFile(filepath.Join(own, file), text, 0o644))
			}
		}
	}
}

// removeTree removes a cgroup with the cgroups in it.
func removeTree(cgroup string) error {
	var dirs []string
	err := filepath.WalkDir(cgroup, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, dir := range slices.Backward(dirs) {
		if err := os.Remove(dir); err != nil {
			return err
		}
	}
	return nil
}

// command returns a command that runs in the machine.
func (m *machine) command(ctx context.Context, args ...string) *exec.Cmd {
	shell := []string{"-c", joinCgroups + `target=$1 && shift && exec nsenter --target "$target" --mount --uts --ipc --net --pid --cgroup "$@"`, m.cgroup, strconv.Itoa(m.init)}
	environment := []string{"env", "-i", "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "KUBECONFIG=/etc/kubernetes/admin.conf"}
	cmd := exec.CommandContext(ctx, "sh", slices.Concat(shell, environment, args)...)
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// try runs a program in the machine, for at most ten minutes, and returns its output.
func (m *machine) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.t.Context()), 10*time.Minute)
	defer cancel()
	out, err := m.command(ctx, args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// run runs a program in the machine, and returns its output. The test fails if the program does.
func (m *machine) run(args ...string) string {
	m.t.Helper()
	out, err := m.try(args...)
	require.NoError(m.t, err, "%s: %s\n%s", m.name, strings.Join(args, " "), out)
	return out
}

// script runs a shell script in the machine, and returns its output.
func (m *machine) script(text string) string {
	m.t.Helper()
	return m.run("sh", "-euc", text)
}

// write writes a file of the machine.
func (m *machine) write(path, text string) {
	m.t.Helper()
	cmd := m.command(m.t.Context(), "install", "-D", "-m", "644", "/dev/stdin", path)
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.CombinedOutput()
	require.NoError(m.t, err, "%s", out)
}

// loadImage loads an image from an archive in .lab/images into containerd.
func (m *machine) loadImage(archive string) {
	m.t.Helper()
	m.run("ctr", "-n", "k8s.io", "images", "import", "--local", filepath.Join(filepath.Dir(m.bin), "images", archive+".tar"))
}

// connect connects two machines by a pair of network devices. Each machine is the router of its peer.
func connect(t *testing.T, machines [2]*machine) {
	t.Helper()
	inNetwork := func(m *machine, command string) {
		out, err := exec.Command("nsenter", "--net=/proc/"+strconv.Itoa(m.init)+"/ns/net", "sh", "-euc", command).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	inNetwork(machines[0], fmt.Sprintf("ip link add eth0 type veth peer name eth0 netns %d", machines[1].init))
	for i, m := range machines {
		inNetwork(m, fmt.Sprintf("ip addr add %s/24 dev eth0; ip link set eth0 up; ip route add default via %s", address(i), address(1-i)))
		m.write("/etc/hosts", fmt.Sprintf("127.0.0.1 localhost\n%s %s\n%s %s\n", address(0), machines[0].name, address(1), machines[1].name))
	}
}

// address returns the IP address of a machine.
func address(i int) string { return fmt.Sprintf("192.0.2.%d", i+1) }
