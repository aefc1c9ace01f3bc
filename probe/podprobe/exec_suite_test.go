// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podprobe_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lab"
	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/podprobe"
)

// execHost is a runtime with real processes, and its differences from other runtimes.
type execHost struct {
	runtime interface {
		cri.Runtime
		cri.Execer
	}
	// knowsChildren is set if the runtime tracks the children of a command: it does not wait for a child that keeps the
	// output open, and kills it with a command that times out.
	knowsChildren bool
	cutsOutput    bool // long output is cut, not rejected
}

// testExec checks exec probes with a real runtime.
func testExec(t *testing.T, h execHost) {
	for name, test := range map[string]func(*testing.T, execHost){
		"answers":                      testExecResults,
		"command or container missing": testExecWithoutContainer,
		"out of time":                  testExecTimeout,
		"timeout during start":         testExecTimeoutDuringStart,
		"long output":                  testExecLongOutput,
		"background":                   testExecBackgroundProcess,
		"container dies":               testExecContainerTerminates,
		"end to end":                   testExecLivenessProbe,
		"end of a set":                 testExecEndOfSet,
	} {
		t.Run(name, func(t *testing.T) { test(t, h) })
	}
}

// testContainer is a container in which commands run.
type testContainer struct {
	execHost
	sandbox, id string
}

// start runs an idle container until the end of the test.
func (h execHost) start(t *testing.T) testContainer {
	t.Helper()
	uid := "podprobe-" + strconv.FormatUint(rand.Uint64(), 36)
	pod := &cri.SandboxConfig{
		Pod:          cri.PodIdentity{UID: uid, Name: uid, Namespace: "podprobe"},
		Labels:       map[string]string{cri.LabelPodUID: uid},
		LogDirectory: t.TempDir(),
		Security:     cri.SandboxSecurity{Namespaces: cri.NamespaceOptions{Network: cri.NamespaceNode}},
	}
	b := testContainer{execHost: h}
	var err error
	b.sandbox, err = h.runtime.RunSandbox(t.Context(), pod)
	require.NoError(t, err)
	t.Cleanup(func() { b.remove(t) })
	b.id, err = h.runtime.CreateContainer(t.Context(), b.sandbox, &cri.ContainerConfig{
		Name:     "main",
		Image:    cri.ImageSpec{Image: lab.BusyboxImage},
		Command:  []string{"/bin/sh", "-c", "exec sleep 100000"},
		Env:      []cri.EnvVar{{Name: "PATH", Value: "/usr/bin:/bin"}},
		LogPath:  "main.log",
		Security: cri.ContainerSecurity{Namespaces: cri.NamespaceOptions{Network: cri.NamespaceNode}},
	}, pod)
	require.NoError(t, err)
	require.NoError(t, h.runtime.StartContainer(t.Context(), b.id))
	return b
}

// remove removes the pod. It may be called twice.
func (b testContainer) remove(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	assert.NoError(t, b.runtime.StopSandbox(ctx, b.sandbox))
	assert.NoError(t, b.runtime.RemoveSandbox(ctx, b.sandbox))
}

// runScript runs a shell script as an exec probe.
func (b testContainer) runScript(t *testing.T, timeout time.Duration, script string) (probe.Result, error) {
	t.Helper()
	return probeIn(t, b.runtime, b.id, timeout, "sh", "-c", script)
}

// newMark returns a random argument by which a sleep process of these tests is found on the machine.
func newMark() string { return strconv.Itoa(100_000_000 + rand.IntN(900_000_000)) }

// countSleepers returns the number of processes with mark as an argument. A zombie has no arguments.
func countSleepers(t *testing.T, mark string) (n int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, file := range files {
		line, _ := os.ReadFile(file) // the process may have exited
		if strings.Contains(string(line), "\x00"+mark+"\x00") {
			n++
		}
	}
	return n
}

// listChildren returns the child processes of the test, with a Z for zombies.
func listChildren(t *testing.T) (list []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	for _, file := range files {
		stat, _ := os.ReadFile(file)
		name, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		switch {
		case len(fields) < 2 || fields[1] != strconv.Itoa(os.Getpid()):
		case fields[0] == "Z":
			list = append(list, name+" Z")
		default:
			list = append(list, name)
		}
	}
	return list
}

// eventually polls a condition until it is true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "timed out: %s", what)
	}
}

// receive returns the next value from a channel and fails the test if none arrives in time.
func receive[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(time.Minute):
		require.FailNow(t, "nothing comes")
	}
	return v
}

func testExecResults(t *testing.T, h execHost) {
	b := h.start(t)
	for script, want := range map[string]probe.Result{
		`exit 0`:                 {Outcome: probe.Success},
		`echo sick; exit 1`:      {Outcome: probe.Failure, Output: "sick\n"},
		`exit 3`:                 {Outcome: probe.Failure},
		`kill -9 $$`:             {Outcome: probe.Failure},
		`echo err >&2; echo out`: {Outcome: probe.Success, Output: "out\nerr\n"},
		`cat; echo done`:         {Outcome: probe.Success, Output: "done\n"}, // the command has an empty input
	} {
		got, err := b.runScript(t, 20*time.Second, script)
		require.NoError(t, err, script)
		assert.Equal(t, want, got, script)
	}
}

// A probe that cannot run in its container is an error, not a failure.
func testExecWithoutContainer(t *testing.T, h execHost) {
	b := h.start(t)
	got, err := probeIn(t, b.runtime, b.id, 20*time.Second, "no-such-command")
	require.ErrorContains(t, err, `"no-such-command": executable file not found in $PATH`)
	assert.Zero(t, got)

	got, err = probeIn(t, b.runtime, "no-such-container", 20*time.Second, "true")
	require.ErrorIs(t, err, cri.ErrNotFound)
	require.ErrorContains(t, err, "in container no-such-container: ")
	assert.Zero(t, got)

	require.NoError(t, b.runtime.StopContainer(t.Context(), b.id, 0))
	got, err = probeIn(t, b.runtime, b.id, 20*time.Second, "true")
	require.ErrorContains(t, err, "in container "+b.id+": ")
	assert.Zero(t, got)
}

// A command that times out fails at its timeout and is killed.
func testExecTimeout(t *testing.T, h execHost) {
	b := h.start(t)
	for _, limit := range []time.Duration{150 * time.Millisecond, time.Second, 1500 * time.Millisecond} {
		m := newMark()
		began := time.Now()
		got, err := probeIn(t, b.runtime, b.id, limit, "sleep", m)
		took := time.Since(began)
		require.NoError(t, err)
		assert.Equal(t, probe.Failure, got.Outcome)
		assert.Contains(t, got.Output, fmt.Sprintf(`command timed out: "sleep %s" timed out after `, m))
		assert.GreaterOrEqual(t, took, limit)
		assert.Less(t, took, limit+time.Minute)
		eventually(t, "the command has exited", func() bool { return countSleepers(t, m) == 0 })
	}

	// A runtime that does not track the children of a command leaves them to the container.
	m := newMark()
	if h.knowsChildren {
		got, err := b.runScript(t, time.Second, "sleep "+m+"; true")
		require.NoError(t, err)
		assert.Equal(t, probe.Failure, got.Outcome)
		eventually(t, "the child of the command has exited", func() bool { return countSleepers(t, m) == 0 })
	} else {
		b.expectTimeout(t, "sleep "+m+"; true", m)
	}
	got, err := b.runScript(t, 20*time.Second, "echo fine")
	require.NoError(t, err)
	assert.Equal(t, probe.Result{Outcome: probe.Success, Output: "fine\n"}, got)
	b.remove(t)
	eventually(t, "the child of the command has exited", func() bool { return countSleepers(t, m) == 0 })
}

// expectTimeout runs a script that starts a sleep with a mark and does not exit before its timeout. It retries with a longer
// timeout if the sleep was not started.
func (b testContainer) expectTimeout(t *testing.T, script, mark string) {
	t.Helper()
	for _, limit := range []time.Duration{time.Second, 8 * time.Second, time.Minute} { // the first is the API's default timeout
		got, err := b.runScript(t, limit, script)
		require.NoError(t, err)
		assert.Equal(t, probe.Failure, got.Outcome)
		assert.Contains(t, got.Output, "timed out after ")
		if countSleepers(t, mark) > 0 {
			break
		}
	}
	eventually(t, "the child of the command still runs", func() bool { return countSleepers(t, mark) == 1 })
}

// A command that times out while the runtime starts it is killed too.
func testExecTimeoutDuringStart(t *testing.T, h execHost) {
	b := h.start(t)
	var marks []string
	for i := range 40 {
		marks = append(marks, newMark())
		_, err := probeIn(t, b.runtime, b.id, time.Duration(1+2*i)*time.Millisecond, "sleep", marks[i])
		require.NoError(t, err)
	}
	for _, m := range marks {
		eventually(t, "the commands have exited", func() bool { return countSleepers(t, m) == 0 })
	}
}

// Output beyond the limit is dropped and does not block the command.
func testExecLongOutput(t *testing.T, h execHost) {
	b := h.start(t)
	got, err := b.runScript(t, 20*time.Second, `head -c 11264 /dev/zero | tr '\0' x; echo never seen >&2`)
	require.NoError(t, err)
	assert.Equal(t, probe.Result{Outcome: probe.Success, Output: strings.Repeat("x", 10240)}, got)

	got, err = b.runScript(t, 20*time.Second, `head -c 2000000 /dev/zero`)
	if h.cutsOutput {
		require.NoError(t, err)
		assert.Equal(t, probe.Result{Outcome: probe.Success, Output: strings.Repeat("\x00", 10240)}, got)
		return
	}
	require.ErrorContains(t, err, "larger than max")
	assert.Zero(t, got)
}

// A background process of a command belongs to the container: it does not delay the probe, and is killed with the container.
func testExecBackgroundProcess(t *testing.T, h execHost) {
	for name, test := range map[string]struct {
		script string
		holds  bool // the background process keeps the output of the command open
	}{
		"output closed":                 {script: `sleep MARK >/dev/null 2>&1 & echo out`},
		"own session, output closed":    {script: `setsid sleep MARK >/dev/null 2>&1 & echo out`},
		"output kept open":              {script: `sleep MARK & echo out`, holds: true},
		"own session, output kept open": {script: `setsid sleep MARK & echo out`, holds: true},
	} {
		t.Run(name, func(t *testing.T) {
			before := listChildren(t)
			b := h.start(t)
			m := newMark()
			script := strings.ReplaceAll(test.script, "MARK", m)
			if test.holds && !h.knowsChildren {
				b.expectTimeout(t, script, m)
			} else {
				got, err := b.runScript(t, time.Minute, script)
				require.NoError(t, err)
				assert.Equal(t, probe.Result{Outcome: probe.Success, Output: "out\n"}, got)
			}
			eventually(t, "the process runs in the background", func() bool { return countSleepers(t, m) == 1 })

			b.remove(t)
			eventually(t, "the process is killed with the container", func() bool { return countSleepers(t, m) == 0 })
			eventually(t, "no child process remains", func() bool {
				_, err := h.runtime.List(t.Context()) // the runtime reaps its own processes
				require.NoError(t, err)
				return !slices.ContainsFunc(listChildren(t), func(child string) bool { return !slices.Contains(before, child) })
			})
		})
	}
}

// If a container terminates while its command runs, the probe returns at once. Either the exit code shows that the command
// was killed, or the runtime has no result. A set that observes the termination first ignores both results.
func testExecContainerTerminates(t *testing.T, h execHost) {
	b := h.start(t)
	m := newMark()
	type answer struct {
		result probe.Result
		err    error
		at     time.Time
	}
	answers := make(chan answer, 1)
	go func() {
		result, err := probeIn(t, b.runtime, b.id, time.Minute, "sleep", m)
		answers <- answer{result, err, time.Now()}
	}()
	eventually(t, "the command runs", func() bool { return countSleepers(t, m) == 1 })
	began := time.Now()
	require.NoError(t, b.runtime.StopContainer(t.Context(), b.id, 0))
	a := receive(t, answers)
	assert.Less(t, a.at.Sub(began), 30*time.Second, "the probe returns before its timeout")
	if a.err == nil {
		assert.Equal(t, probe.Result{Outcome: probe.Failure}, a.result)
	} else {
		assert.Zero(t, a.result)
	}
	eventually(t, "the command has exited", func() bool { return countSleepers(t, m) == 0 })
}

// The liveness probe of a container whose file is removed fails as often as its threshold. Then MustKill returns true.
func testExecLivenessProbe(t *testing.T, h execHost) {
	b := h.start(t)
	healthy := "/tmp/healthy-" + newMark()
	defer os.Remove(healthy) // for runtimes whose containers use the file system of the machine
	_, err := b.runScript(t, 20*time.Second, "touch "+healthy)
	require.NoError(t, err)
	pod := newPod(corev1.Container{
		Name: "main",
		Env:  []corev1.EnvVar{{Name: "FILE", Value: healthy}},
		LivenessProbe: &corev1.Probe{
			PeriodSeconds: 1, TimeoutSeconds: 10, FailureThreshold: 3,
			ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"cat", "$(FILE)"}}},
		},
	})
	status := &pod.Status.ContainerStatuses[0]
	status.ContainerID, status.State.Running.StartedAt = "test://"+b.id, metav1.Now()

	probed, changed := make(chan probe.Result, 100), make(chan probe.Value, 100)
	set := probe.NewSet(probe.Options{Hooks: probe.Hooks{
		ProbeFinished: func(_ probe.Key, r probe.Result, err error, _ time.Duration) {
			assert.NoError(t, err)
			probed <- r
		},
		ValueChanged: func(_ probe.Key, v probe.Value) { changed <- v },
	}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- set.Run(ctx) }()
	require.NoError(t, set.Sync(validTargets(t, pod, podprobe.Options{Execer: podprobe.CRI(h.runtime)})))

	assert.Equal(t, probe.Value{ContainerID: b.id, Outcome: probe.Success}, receive(t, changed)) // the value before the first probe
	assert.Equal(t, probe.Result{Outcome: probe.Success}, receive(t, probed))
	_, err = b.runScript(t, 20*time.Second, "rm "+healthy)
	require.NoError(t, err)
	assert.Equal(t, probe.Value{ContainerID: b.id, Outcome: probe.Failure}, receive(t, changed))
	cancel()
	require.NoError(t, receive(t, done))
	close(probed)
	failures := 0
	for r := range probed {
		if r.Outcome == probe.Failure {
			assert.Contains(t, r.Output, healthy)
			failures++
		}
	}
	assert.Equal(t, 3, failures)
	kill, must := podprobe.MustKill(pod, &pod.Spec.Containers[0], status, set.Result)
	assert.True(t, must)
	assert.Equal(t, "Container main failed liveness probe, will be restarted", kill.Message)
}
