// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hook_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/hook"
)

// newCall returns a call for the container "app" of a pod on this machine.
func newCall() hook.Call {
	return hook.Call{
		Pod:         &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u1"}},
		Container:   &corev1.Container{Name: "app"},
		ContainerID: "u1-app-0",
		PodIP:       "127.0.0.1",
	}
}

func execHandler(command ...string) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: command}}
}

func sleepHandler(seconds int64) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: seconds}}
}

// newRuntime returns a runtime with the container of newCall. exec runs its commands.
func newRuntime(t *testing.T, exec critest.ExecFunc) *critest.Runtime {
	t.Helper()
	rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{"app": {Exec: exec}})})
	launch(t, rt, "app")
	return rt
}

// launch starts the containers of a pod. Their IDs are u1-NAME-0.
func launch(t *testing.T, rt *critest.Runtime, names ...string) {
	t.Helper()
	s := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "u1", Name: "web", Namespace: "shop"}}
	sandbox, err := rt.RunSandbox(t.Context(), s)
	require.NoError(t, err)
	for _, name := range names {
		id, err := rt.CreateContainer(t.Context(), sandbox, &cri.ContainerConfig{Name: name}, s)
		require.NoError(t, err)
		require.Equal(t, "u1-"+name+"-0", id)
		require.NoError(t, rt.StartContainer(t.Context(), id))
	}
}

// Hook commands are not expanded, unlike container commands and probes.
func TestExecDoesNotExpandArguments(t *testing.T) {
	var got []string
	runner := hook.New(hook.Options{Execer: newRuntime(t, func(_ context.Context, cmd []string) (cri.ExecResult, error) {
		got = cmd
		return cri.ExecResult{Stdout: []byte("done")}, nil
	})})
	c := newCall()
	c.Container.Env = []corev1.EnvVar{{Name: "A", Value: "v"}}
	require.NoError(t, runner.Run(t.Context(), c, execHandler("echo", "$(A)", "$$")))
	assert.Equal(t, []string{"echo", "$(A)", "$$"}, got)
}

// The error text is that of the kubelet in the container status.
func TestExecErrorHasTextOfKubelet(t *testing.T) {
	runner := hook.New(hook.Options{Execer: newRuntime(t, func(context.Context, []string) (cri.ExecResult, error) {
		return cri.ExecResult{Stdout: []byte("out\n"), Stderr: []byte("no \xff such\n"), ExitCode: 7}, nil
	})})
	err := runner.Run(t.Context(), newCall(), execHandler("drain", "-a"))
	require.EqualError(t, err, `Exec lifecycle hook ([drain -a]) for Container "app" in Pod "web_shop(u1)" failed - error: `+
		"command 'drain -a' exited with 7: no \uFFFD such\n, message: \"out\\nno \uFFFD such\\n\"")

	exit, ok := errors.AsType[*hook.ExitError](err)
	require.True(t, ok)
	assert.Equal(t, 7, exit.Code)
	assert.Equal(t, []string{"drain", "-a"}, exit.Command)
}

// Only the first MaxOutput bytes of stdout and stderr together are kept.
func TestExecOutputIsBounded(t *testing.T) {
	for name, row := range map[string]struct {
		stdout, stderr int
		want           string
	}{
		"both":   {hook.MaxOutput - 1, 100, strings.Repeat("o", hook.MaxOutput-1) + "e"},
		"stdout": {10 << 20, 10 << 20, strings.Repeat("o", hook.MaxOutput)},
		"stderr": {0, 10 << 20, strings.Repeat("e", hook.MaxOutput)},
		"none":   {0, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			runner := hook.New(hook.Options{Execer: newRuntime(t, func(context.Context, []string) (cri.ExecResult, error) {
				stdout, stderr := strings.Repeat("o", row.stdout), strings.Repeat("e", row.stderr)
				return cri.ExecResult{Stdout: []byte(stdout), Stderr: []byte(stderr), ExitCode: 1}, nil
			})})
			failed, ok := errors.AsType[*hook.Error](runner.Run(t.Context(), newCall(), execHandler("c")))
			require.True(t, ok)
			assert.Equal(t, row.want, failed.Output)
			assert.Less(t, len(failed.Error()), 3*hook.MaxOutput)
		})
	}
}

func TestExecErrorsWithoutExitCode(t *testing.T) {
	rt := newRuntime(t, nil)
	c := newCall()
	c.ContainerID = "gone"
	err := hook.New(hook.Options{Execer: rt}).Run(t.Context(), c, execHandler("c"))
	require.ErrorIs(t, err, cri.ErrNotFound)
	_, ok := errors.AsType[*hook.ExitError](err)
	assert.False(t, ok, "without a command there is no exit code")

	err = hook.New(hook.Options{Execer: rt}).Run(t.Context(), newCall(), execHandler())
	require.ErrorContains(t, err, "field command: is empty")
	err = hook.New(hook.Options{}).Run(t.Context(), newCall(), execHandler("c"))
	require.ErrorContains(t, err, "commands cannot be run here")
}

// An API server accepts tcpSocket for old manifests; every such handler fails.
func TestInvalidHandlersFail(t *testing.T) {
	for want, h := range map[string]*corev1.LifecycleHandler{
		"Cannot run handler: invalid handler: tcpSocket handlers are not run":     {TCPSocket: &corev1.TCPSocketAction{}},
		"Cannot run handler: invalid handler: is none of exec, httpGet and sleep": {},
	} {
		require.EqualError(t, hook.New(hook.Options{}).Run(t.Context(), newCall(), h), want)
	}
}

// A hung command is killed at the end of the context, or at the timeout if the context has no deadline.
func TestExecKilledAtDeadline(t *testing.T) {
	for name, row := range map[string]struct {
		options  hook.Options
		deadline time.Duration
		want     time.Duration
	}{
		"deadline":                           {hook.Options{}, 32 * time.Second, 32 * time.Second},
		"context deadline after the timeout": {hook.Options{Timeout: time.Minute}, 3 * time.Hour, 3 * time.Hour},
		"no deadline":                        {hook.Options{}, 0, time.Hour},
		"no deadline, timeout of options":    {hook.Options{Timeout: time.Minute}, 0, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				row.options.Execer = newRuntime(t, func(ctx context.Context, _ []string) (cri.ExecResult, error) {
					<-ctx.Done()
					return cri.ExecResult{}, ctx.Err()
				})
				ctx, cancel := context.WithCancel(t.Context())
				if row.deadline > 0 {
					ctx, cancel = context.WithTimeout(ctx, row.deadline)
				}
				defer cancel()
				began := time.Now()
				require.ErrorIs(t, hook.New(row.options).Run(ctx, newCall(), execHandler("c")), context.DeadlineExceeded)
				assert.Equal(t, row.want, time.Since(began))
			})
		})
	}
}

func TestSleepDuration(t *testing.T) {
	for name, row := range map[string]struct {
		seconds  int64
		deadline time.Duration
		want     time.Duration
		cut      bool
	}{
		"in time":   {5, 32 * time.Second, 5 * time.Second, false},
		"too long":  {40, 32 * time.Second, 32 * time.Second, true},
		"for ever":  {math.MaxInt64, 32 * time.Second, 32 * time.Second, true},
		"unbounded": {math.MaxInt64, 0, time.Hour, true},
		"none":      {0, 32 * time.Second, 0, false},
		"negative":  {-1, 32 * time.Second, 0, false},
		"far below": {-math.MaxInt64/int64(time.Second) - 1, 32 * time.Second, 0, false}, // would overflow
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cut := 0
				runner := hook.New(hook.Options{Hooks: hook.Hooks{SleepTerminated: func(hook.Call) { cut++ }}})
				ctx, cancel := context.WithCancel(t.Context())
				if row.deadline > 0 {
					ctx, cancel = context.WithTimeout(ctx, row.deadline)
				}
				defer cancel()
				began := time.Now()
				err := runner.Run(ctx, newCall(), sleepHandler(row.seconds))
				assert.Equal(t, row.want, time.Since(began))
				if !row.cut {
					require.NoError(t, err)
					assert.Zero(t, cut)
					return
				}
				assert.ErrorContains(t, err, `for Container "app" in Pod "web_shop(u1)" failed - error: `+
					"container terminated before sleep hook finished")
				assert.Equal(t, 1, cut)
			})
		})
	}
}
