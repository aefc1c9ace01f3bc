// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process"
	"github.com/seed81659283/nodeagent/cri/process/internal/shim"
)

// sessionAgentName is the argv[0] of a test binary that plays an agent which serves one session.
const sessionAgentName = "process-test-session-agent"

// outputBuffer is a concurrency-safe buffer of output.
type outputBuffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *outputBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *outputBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

func (b *outputBuffer) awaitText(t *testing.T, want string) {
	t.Helper()
	requireEventually(t, fmt.Sprintf("%q comes", want), func() bool { return strings.Contains(b.String(), want) })
}

// slowWriter is a client that reads slowly.
type slowWriter struct {
	to    io.Writer
	pause time.Duration
}

func (s slowWriter) Write(p []byte) (n int, err error) {
	time.Sleep(s.pause)
	return s.to.Write(p)
}

// runIdleContainer runs a container that does nothing, for commands beside it.
func runIdleContainer(t *testing.T, rt *process.Runtime) string {
	t.Helper()
	sandbox, _ := runPodSandbox(t, rt)
	return startContainer(t, rt, sandbox, shellConfig(`exec sleep 1000`))
}

// countDescriptors returns the number of open descriptors of this process.
func countDescriptors(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(names)
}

// awaitNoLeaks waits until the numbers of descriptors and goroutines are as before.
func awaitNoLeaks(t *testing.T, descriptorsBefore, goroutinesBefore int) {
	t.Helper()
	requireEventually(t, "descriptors and goroutines are as before", func() bool {
		return countDescriptors(t) <= descriptorsBefore && runtime.NumGoroutine() <= goroutinesBefore
	})
}

func TestRunExec(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	id := runIdleContainer(t, rt)
	for _, test := range []struct {
		name, script, stdin string
		noStdin             bool
		stdout, stderr      string
		code                int
	}{
		{name: "both streams", script: `echo out; echo err >&2; exit 7`, stdout: "out\n", stderr: "err\n", code: 7},
		{name: "stdin", script: `cat; echo end`, stdin: strings.Repeat("line\n", 50_000), stdout: strings.Repeat("line\n", 50_000) + "end\n"},
		{name: "no stdin", script: `cat; echo end`, noStdin: true, stdout: "end\n"},
		{name: "stdin that the command does not read", script: `exit 3`, stdin: strings.Repeat("x", 1<<20), code: 3},
		{name: "signal", script: `kill -9 $$`, code: 137},
		{name: "no terminal", script: `test -t 0 || test -t 1 || echo none`, stdout: "none\n"},
		{name: "background process", script: `sleep 1000 & echo out`, stdout: "out\n"},
		{name: "background process that writes", script: `(while :; do echo more; done) & echo $! >&2`, stderr: "*", stdout: "*"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var stdout, stderr outputBuffer
			s := cri.Session{Stdin: strings.NewReader(test.stdin), Stdout: &stdout, Stderr: &stderr}
			if test.noStdin {
				s.Stdin = nil
			}
			code, err := rt.RunExec(t.Context(), id, []string{"sh", "-c", test.script}, s)
			require.NoError(t, err)
			assert.Equal(t, test.code, code)
			if test.stdout != "*" {
				assert.Equal(t, test.stdout, stdout.String())
				assert.Equal(t, test.stderr, stderr.String())
			}
		})
	}
	_, err := rt.RunExec(t.Context(), id, []string{"no-such-command"}, cri.Session{})
	require.ErrorContains(t, err, "no-such-command")
	_, err = rt.RunExec(t.Context(), id, nil, cri.Session{})
	require.ErrorContains(t, err, "no command")
	_, err = rt.RunExec(t.Context(), "none", []string{"true"}, cri.Session{})
	require.ErrorIs(t, err, cri.ErrNotFound)
	require.NoError(t, rt.StopContainer(t.Context(), id, 0))
	_, err = rt.RunExec(t.Context(), id, []string{"true"}, cri.Session{})
	require.ErrorContains(t, err, "not running")
}

// A command on a terminal has the terminal's size, receives a new size, and is its foreground job.
func TestRunExecTerminal(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	id := runIdleContainer(t, rt)
	stdin, keyboard := io.Pipe()
	defer keyboard.Close()
	var screen outputBuffer
	sizes := make(chan cri.TerminalSize, 1)
	sizes <- cri.TerminalSize{Width: 80, Height: 24}
	done := make(chan int)
	go func() {
		script := `echo "$TERM"; stty size; trap 'stty size' WINCH; trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.01; done`
		code, err := rt.RunExec(t.Context(), id, []string{"sh", "-c", script}, cri.Session{Stdin: stdin, Stdout: &screen, TTY: true, Resize: sizes})
		assert.NoError(t, err)
		done <- code
	}()
	screen.awaitText(t, "xterm\r\n24 80\r\nready\r\n")
	sizes <- cri.TerminalSize{Width: 132, Height: 50}
	screen.awaitText(t, "50 132\r\n")
	_, err := keyboard.Write([]byte{3}) // Ctrl-C
	require.NoError(t, err)
	assert.Equal(t, 9, <-done)
	screen.awaitText(t, "caught\r\n")
}

// The output of a command arrives completely at a slow client, long after the command has exited.
func TestRunExecSlowClient(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	id := runIdleContainer(t, rt)
	for name, tty := range map[string]bool{"pipe": false, "terminal": true} {
		t.Run(name, func(t *testing.T) {
			var out outputBuffer
			size := 60_000 // fits into the pipe, so that the command exits at once
			if tty {
				size = 3_000
			}
			code, err := rt.RunExec(t.Context(), id, []string{"sh", "-c", fmt.Sprintf(`head -c %d /dev/zero | tr '\0' x; exit 4`, size)},
				cri.Session{Stdout: slowWriter{&out, 400 * time.Millisecond}, TTY: tty})
			require.NoError(t, err)
			assert.Equal(t, 4, code)
			assert.Equal(t, size, strings.Count(out.String(), "x"))
		})
	}
}

// Output that a command wrote before it was killed with its container arrives too.
func TestRunExecKilledWithContainer(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	id := runIdleContainer(t, rt)
	var out, errs outputBuffer
	done := make(chan error, 1)
	go func() {
		code, err := rt.RunExec(t.Context(), id, []string{"sh", "-c", `head -c 60000 /dev/zero | tr '\0' x; echo written >&2; exec sleep 1000`},
			cri.Session{Stdout: slowWriter{&out, 200 * time.Millisecond}, Stderr: &errs})
		if err == nil && code != 137 {
			err = fmt.Errorf("code %d", code)
		}
		done <- err
	}()
	errs.awaitText(t, "written")
	require.NoError(t, rt.StopContainer(t.Context(), id, 0))
	if err := <-done; err != nil {
		require.ErrorContains(t, err, "the container has exited")
	}
	assert.Equal(t, 60_000, strings.Count(out.String(), "x"))
}

// A command and its child processes are killed when its context ends or its client rejects output.
func TestRunExecKillsCommandWhenClientLeaves(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	id := runIdleContainer(t, rt)
	mark := "NODEAGENT_CONTAINER_ID=" + id
	script := `setsid sleep 1000 & (setsid sleep 1000 & ) ; (trap '' HUP TERM; sleep 1000) & echo ready; sleep 1000`
	cause := errors.New("the connection is lost")
	for name, tty := range map[string]bool{"pipe": false, "terminal": true} {
		t.Run(name, func(t *testing.T) {
			files, goroutines := countDescriptors(t), runtime.NumGoroutine()
			ctx, cancel := context.WithCancelCause(t.Context())
			stdin, keyboard := io.Pipe()
			var out outputBuffer
			done := make(chan error)
			go func() {
				_, err := rt.RunExec(ctx, id, []string{"sh", "-c", script}, cri.Session{Stdin: stdin, Stdout: &out, TTY: tty})
				done <- err
			}()
			out.awaitText(t, "ready")
			requireEventually(t, "all run", func() bool { return len(processesWithEnv(t, mark)) >= 6 })
			begin := time.Now()
			cancel(cause)
			require.ErrorIs(t, <-done, cause)
			assert.Less(t, time.Since(begin), time.Minute)
			requireEventually(t, "the command and its child processes are killed", func() bool { return len(processesWithEnv(t, mark)) == 1 })
			keyboard.Close()
			awaitNoLeaks(t, files, goroutines)
		})
	}
	_, err := rt.RunExec(t.Context(), id, []string{"yes"}, cri.Session{Stdout: brokenWriter{}})
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.ErrorContains(t, err, "write stdout")
	requireEventually(t, "the command and its child processes are killed", func() bool { return len(processesWithEnv(t, mark)) == 1 })
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// Many concurrent sessions have complete output and correct exit codes, and no process, descriptor or goroutine leaks.
func TestManySessionsLeakNothing(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	id := runIdleContainer(t, rt)
	files, goroutines := countDescriptors(t), runtime.NumGoroutine()
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			in := strings.Repeat(fmt.Sprintln("line", i), 5000)
			var out, errs bytes.Buffer
			code, err := rt.RunExec(t.Context(), id, []string{"sh", "-c", `cat; echo "$0" >&2; exit $(($0 % 100))`, fmt.Sprint(i)},
				cri.Session{Stdin: strings.NewReader(in), Stdout: &out, Stderr: &errs})
			assert.NoError(t, err)
			assert.Equal(t, i%100, code)
			assert.Equal(t, sha256.Sum256([]byte(in)), sha256.Sum256(out.Bytes()))
			assert.Equal(t, fmt.Sprintln(i), errs.String())
		})
	}
	wg.Wait()
	assert.Len(t, processesWithEnv(t, "NODEAGENT_CONTAINER_ID="+id), 1)
	awaitNoLeaks(t, files, goroutines)
}

// Sessions end at once with an error when the shim is killed.
func TestSessionsEndWhenShimIsKilled(t *testing.T) {
	root := t.TempDir()
	rt := openRuntime(t, root)
	sandbox, _ := runPodSandbox(t, rt)
	id := startContainer(t, rt, sandbox, shellConfig(`while :; do echo seen; sleep 0.05; done`))
	var out, seen outputBuffer
	attached, leave := startAttach(t, rt, id, cri.Session{Stdout: &seen})
	defer leave()
	seen.awaitText(t, "seen")
	ran := make(chan error, 1)
	go func() {
		_, err := rt.RunExec(t.Context(), id, []string{"sh", "-c", "echo ready; sleep 1000"}, cri.Session{Stdout: &out})
		ran <- err
	}()
	out.awaitText(t, "ready")
	run, err := shim.ReadRun(filepath.Join(root, "containers", id))
	require.NoError(t, err)
	require.NoError(t, unix.Kill(run.Shim, unix.SIGKILL))
	for _, done := range []chan error{attached, ran} {
		select {
		case err := <-done:
			require.ErrorContains(t, err, "the container has exited")
		case <-time.After(time.Minute):
			require.Fail(t, "the session does not end")
		}
	}
	awaitExit(t, rt, id)
	requireEventually(t, "no process of the container is left", func() bool { return len(processesWithEnv(t, "NODEAGENT_CONTAINER_ID="+id)) == 0 })
}

// An idle session holds its goroutines, but no buffers.
func TestIdleSessionsHoldNoBuffers(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	id := runIdleContainer(t, rt)
	memory := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	const sessions = 50
	before := memory()
	ctx, cancel := context.WithCancel(t.Context())
	stdin, keyboard := io.Pipe()
	var wg sync.WaitGroup
	var out outputBuffer
	for range sessions {
		wg.Go(func() {
			_, err := rt.RunExec(ctx, id, []string{"sh", "-c", "echo ready; exec sleep 1000"}, cri.Session{Stdin: stdin, Stdout: &out, Stderr: &out})
			assert.ErrorIs(t, err, context.Canceled)
		})
	}
	requireEventually(t, "all run", func() bool { return strings.Count(out.String(), "ready") == sessions })
	each := (int64(memory()) - int64(before)) / sessions
	t.Logf("%d bytes per session", each)
	assert.Less(t, each, int64(48<<10))
	cancel()
	wg.Wait()
	keyboard.Close()
}

// sessionAgentMain runs a session of a kind in the container of the runtime at root until it is killed.
func sessionAgentMain(root, kind string) int {
	ctx := context.Background()
	rt, err := process.Open(root, process.Options{})
	if err == nil {
		var s cri.Snapshot
		if s, err = rt.List(ctx); err == nil {
			err = serveSession(ctx, rt, s.Containers[0], kind)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func serveSession(ctx context.Context, rt *process.Runtime, c cri.Container, kind string) error {
	never, _ := io.Pipe()
	s := cri.Session{Stdin: never, Stdout: os.Stdout, Stderr: os.Stdout}
	switch kind {
	case "exec", "terminal":
		s.TTY = kind == "terminal"
		_, err := rt.RunExec(ctx, c.ID, []string{"sh", "-c", `(setsid sleep 1000 &); echo session; sleep 1000`}, s)
		return err
	case "attach":
		return rt.RunAttach(ctx, c.ID, s)
	}
	return fmt.Errorf("kind %q", kind)
}

// An agent is killed during a session of each kind: the container continues, nothing of the session remains, and the next
// agent can run sessions.
func TestSessionCommandIsKilledWithAgent(t *testing.T) {
	for _, kind := range []string{"exec", "terminal", "attach"} {
		t.Run(kind, func(t *testing.T) {
			root := t.TempDir()
			rt, err := process.Open(root, process.Options{})
			require.NoError(t, err)
			sandbox, _ := runPodSandbox(t, rt)
			c := shellConfig(`while :; do echo session; sleep 0.02; done`)
			c.Stdin = true
			id := startContainer(t, rt, sandbox, c)
			require.NoError(t, rt.Close())

			agent := exec.Command("/proc/self/exe")
			agent.Args = []string{sessionAgentName, root, kind}
			out, err := agent.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, agent.Start())
			_, err = io.ReadFull(out, make([]byte, len("session")))
			require.NoError(t, err)
			require.NoError(t, agent.Process.Kill())
			_ = agent.Wait()

			rt = openRuntime(t, root)
			assert.Equal(t, cri.ContainerRunning, getContainer(t, rt, id).State)
			requireEventually(t, "no process of the session is left", func() bool {
				for _, p := range processesWithEnv(t, "NODEAGENT_CONTAINER_ID="+id) {
					if line, _ := os.ReadFile(fmt.Sprint("/proc/", p.PID, "/cmdline")); bytes.Contains(line, []byte("1000")) {
						return false
					}
				}
				return true
			})
			code, err := rt.RunExec(t.Context(), id, []string{"sh", "-c", "exit 3"}, cri.Session{})
			require.NoError(t, err)
			assert.Equal(t, 3, code)
			var seen outputBuffer
			done, leave := startAttach(t, rt, id, cri.Session{Stdout: &seen})
			seen.awaitText(t, "session")
			leave()
			require.ErrorIs(t, <-done, context.Canceled)
		})
	}
}

// A port of a sandbox is in its own network if it has one, else on the host.
func TestIntegrationRunPortForward(t *testing.T) {
	n := newNetwork(t)
	rt := openWith(t, t.TempDir(), process.Options{Network: n})
	sandbox := runPod(t, rt, cri.SandboxConfig{LogDirectory: t.TempDir()})
	path, err := os.Readlink("/proc/self/ns/net")
	require.NoError(t, err)
	client, conn := net.Pipe()
	done := make(chan error, 1)
	l := listenIn(t, n, sandbox)
	go func() {
		c, err := l.Accept()
		if assert.NoError(t, err) {
			_, _ = io.WriteString(c, "from the pod")
			c.Close()
		}
	}()
	port := int32(l.Addr().(*net.TCPAddr).Port)
	go func() { done <- rt.RunPortForward(t.Context(), sandbox, port, conn) }()
	said, err := io.ReadAll(client)
	require.NoError(t, err)
	assert.Equal(t, "from the pod", string(said))
	require.NoError(t, <-done)
	here, err := os.Readlink("/proc/self/ns/net")
	require.NoError(t, err)
	assert.Equal(t, path, here, "this process stays in its own network")

	c := cri.SandboxConfig{LogDirectory: t.TempDir()}
	c.Security.Namespaces.Network = cri.NamespaceNode
	c.Pod.UID = "host"
	host, err := rt.RunSandbox(t.Context(), &c)
	require.NoError(t, err)
	_, conn = net.Pipe()
	require.ErrorContains(t, rt.RunPortForward(t.Context(), host, port, conn), "dial tcp 127.0.0.1:")
	require.NoError(t, rt.StopSandbox(t.Context(), host))
	for id, want := range map[string]string{host: "not ready", "none": "not found"} {
		client, conn := net.Pipe()
		require.ErrorContains(t, rt.RunPortForward(t.Context(), id, port, conn), want)
		_, err = client.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	}
}

// listenIn listens on the loopback interface of a sandbox's network.
func listenIn(t *testing.T, n *network, sandbox string) net.Listener {
	t.Helper()
	var l net.Listener
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	require.NoError(t, err)
	defer own.Close()
	other, err := os.Open(n.spaces.Path(sandbox))
	require.NoError(t, err)
	defer other.Close()
	require.NoError(t, unix.Setns(int(other.Fd()), unix.CLONE_NEWNET))
	l, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, unix.Setns(int(own.Fd()), unix.CLONE_NEWNET)) // otherwise the thread exits with the test
	runtime.UnlockOSThread()
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}
