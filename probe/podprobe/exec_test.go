// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podprobe_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/podprobe"
)

// execFunc is a runtime whose ExecSync is a function.
type execFunc func(ctx context.Context, id string, cmd []string, timeout time.Duration) (cri.ExecResult, error)

func (f execFunc) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (cri.ExecResult, error) {
	return f(ctx, id, cmd, timeout)
}

// startScripted starts a container in memory whose commands call answer.
func startScripted(t *testing.T, answer critest.ExecFunc) (rt *critest.Runtime, id string) {
	t.Helper()
	rt = critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script {
		return critest.Script{Exec: answer}
	}})
	pod := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "u1", Name: "web", Namespace: "shop"}}
	sandbox, err := rt.RunSandbox(t.Context(), pod)
	require.NoError(t, err)
	id, err = rt.CreateContainer(t.Context(), sandbox, &cri.ContainerConfig{Name: "c"}, pod)
	require.NoError(t, err)
	require.NoError(t, rt.StartContainer(t.Context(), id))
	return rt, id
}

// probeIn runs a command in a container as an exec probe.
func probeIn(t *testing.T, rt cri.Execer, id string, timeout time.Duration, command ...string) (probe.Result, error) {
	t.Helper()
	p, err := probe.NewExec(podprobe.CRI(rt), probe.ExecConfig{ContainerID: id, Command: command})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return p.Probe(ctx)
}

func TestCRIReturnsOutputAndExitCode(t *testing.T) {
	broken := errors.New("the runtime cannot")
	for name, test := range map[string]struct {
		result cri.ExecResult
		err    error
		want   probe.Result
	}{
		"zero":     {result: cri.ExecResult{Stdout: []byte("fine")}, want: probe.Result{Outcome: probe.Success, Output: "fine"}},
		"three":    {result: cri.ExecResult{ExitCode: 3}, want: probe.Result{Outcome: probe.Failure}},
		"a signal": {result: cri.ExecResult{ExitCode: 137}, want: probe.Result{Outcome: probe.Failure}},
		"stdout first": {
			result: cri.ExecResult{Stdout: []byte("out"), Stderr: []byte("err"), ExitCode: 1},
			want:   probe.Result{Outcome: probe.Failure, Output: "outerr"},
		},
		"timeout of the runtime": {
			err: context.DeadlineExceeded, want: probe.Result{Outcome: probe.Failure, Output: `command timed out: "check -x" timed out after 5s`},
		},
		"not run": {err: broken},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt, id := startScripted(t, func(context.Context, []string) (cri.ExecResult, error) { return test.result, test.err })
				got, err := probeIn(t, rt, id, 5*time.Second, "check", "-x")
				if !errors.Is(test.err, context.DeadlineExceeded) {
					require.ErrorIs(t, err, test.err)
				}
				assert.Equal(t, test.want, got)
			})
		})
	}
}

// Large output of the runtime is cut, so that it does not stay in memory.
func TestCRIKeepsMaxOutputBytes(t *testing.T) {
	const most = probe.MaxOutput
	for _, test := range []struct{ stdout, stderr, out, err int }{
		{stdout: 1 << 20, stderr: 1 << 20, out: most},
		{stdout: most - 1, stderr: 2, out: most - 1, err: 1},
		{stdout: most, stderr: 1, out: most},
		{stderr: 1 << 20, err: most},
		{stdout: 1, out: 1},
		{},
	} {
		rt := execFunc(func(context.Context, string, []string, time.Duration) (cri.ExecResult, error) {
			return cri.ExecResult{Stdout: bytes.Repeat([]byte("o"), test.stdout), Stderr: bytes.Repeat([]byte("e"), test.stderr)}, nil
		})
		output, _, err := podprobe.CRI(rt).Exec(t.Context(), "c1", []string{"check"})
		require.NoError(t, err)
		assert.Equal(t, strings.Repeat("o", test.out)+strings.Repeat("e", test.err), string(output))
		assert.LessOrEqual(t, cap(output), most, "the capacity is limited too")
	}
}

// The runtime gets the remaining time as its timeout; without a deadline it gets no limit.
func TestCRIPassesTheRemainingTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got time.Duration
		execer := podprobe.CRI(execFunc(func(_ context.Context, _ string, _ []string, timeout time.Duration) (cri.ExecResult, error) {
			got = timeout
			return cri.ExecResult{}, nil
		}))
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		_, _, err := execer.Exec(ctx, "c1", []string{"check"})
		require.NoError(t, err)
		assert.Equal(t, 1500*time.Millisecond, got)

		_, _, err = execer.Exec(t.Context(), "c1", []string{"check"})
		require.NoError(t, err)
		assert.Zero(t, got)

		got = -1
		time.Sleep(2 * time.Second)
		_, _, err = execer.Exec(ctx, "c1", []string{"check"})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		assert.EqualValues(t, -1, got, "no command is run after its deadline")
	})
}

// A timeout below a second is kept. The runtime, whose timeouts are whole seconds, still ends the command.
func TestCRIReturnsBeforeTheRuntimesTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var ended atomic.Int64
		rt, id := startScripted(t, func(ctx context.Context, _ []string) (cri.ExecResult, error) {
			<-ctx.Done()
			ended.Store(int64(time.Since(begun)))
			return cri.ExecResult{}, ctx.Err()
		})
		got, err := probeIn(t, rt, id, 200*time.Millisecond, "sleep", "9")
		require.NoError(t, err)
		assert.Equal(t, probe.Result{Outcome: probe.Failure, Output: `command timed out: "sleep 9" timed out after 200ms`}, got)
		assert.Equal(t, 200*time.Millisecond, time.Since(begun))
		time.Sleep(time.Minute)
		assert.EqualValues(t, time.Second, ended.Load(), "the runtime is not cancelled before its timeout of a second")
	})
}

// Calls of a hung runtime are cancelled after ten seconds, and at most maxDetached of them continue at a time.
func TestCRIDetachedCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inside, most atomic.Int32
		execer := podprobe.CRI(execFunc(func(ctx context.Context, _ string, _ []string, _ time.Duration) (cri.ExecResult, error) {
			most.Store(max(most.Load(), inside.Add(1)))
			defer inside.Add(-1)
			<-ctx.Done()
			return cri.ExecResult{}, ctx.Err()
		}))
		for range 300 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			_, _, err := execer.Exec(ctx, "c1", []string{"sleep"})
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		assert.EqualValues(t, 257, most.Load())
		assert.EqualValues(t, 256, inside.Load())
		time.Sleep(11 * time.Second)
		assert.Zero(t, inside.Load())

		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, _, err := execer.Exec(ctx, "c1", []string{"sleep"})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.EqualValues(t, 1, inside.Load(), "another call is possible after a call has returned")
		time.Sleep(11 * time.Second)
	})
}

// A probe that is cancelled because its container terminated also cancels its runtime call.
func TestCRICancelledProbeCancelsItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		returned := false
		execer := podprobe.CRI(execFunc(func(ctx context.Context, _ string, _ []string, _ time.Duration) (cri.ExecResult, error) {
			<-ctx.Done()
			returned = true
			return cri.ExecResult{}, ctx.Err()
		}))
		for _, parent := range []context.Context{t.Context(), withDeadline(t, time.Minute)} {
			ctx, cancel := context.WithCancel(parent)
			time.AfterFunc(time.Second, cancel)
			begun := time.Now()
			_, _, err := execer.Exec(ctx, "c1", []string{"sleep"})
			require.ErrorIs(t, err, context.Canceled)
			assert.Equal(t, time.Second, time.Since(begun))
			assert.True(t, returned)
			returned = false
		}
	})
}

// A detached runtime call is cancelled a second after the set ends, and Run waits for it.
func TestCRIDetachedCallsEndWithTheSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inside atomic.Int32
		rt := execFunc(func(ctx context.Context, _ string, _ []string, _ time.Duration) (cri.ExecResult, error) {
			inside.Add(1)
			defer inside.Add(-1)
			<-ctx.Done() // ignores its own timeout
			return cri.ExecResult{}, ctx.Err()
		})
		p, err := probe.NewExec(podprobe.CRI(rt), probe.ExecConfig{ContainerID: "c1", Command: []string{"sleep"}})
		require.NoError(t, err)
		set := probe.NewSet(probe.Options{Rand: func() float64 { return 0 }})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- set.Run(ctx) }()
		require.NoError(t, set.Sync([]probe.Target{{
			Key:         probe.Key{PodUID: "u1", Container: "c", Kind: probe.Liveness},
			ContainerID: "c1", StartedAt: time.Now(), Running: true, Started: true,
			Spec: probe.Spec{Period: 3 * time.Second}, Prober: p,
		}}))
		time.Sleep(8500 * time.Millisecond)
		assert.EqualValues(t, 3, inside.Load(), "two calls are past their timeout, and a third has just started")
		begun := time.Now()
		stop()
		require.NoError(t, <-done)
		assert.Zero(t, inside.Load(), "no call continues after Run")
		assert.Equal(t, time.Second, time.Since(begun))
	})
}

func withDeadline(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// A missing or stopped container is an error, not a failed probe.
func TestCRIErrorForMissingContainer(t *testing.T) {
	rt, id := startScripted(t, nil)
	got, err := probeIn(t, rt, "nothing", time.Second, "check")
	require.ErrorIs(t, err, cri.ErrNotFound)
	require.ErrorContains(t, err, "nothing")
	assert.Zero(t, got)

	require.NoError(t, rt.StopContainer(t.Context(), id, 0))
	got, err = probeIn(t, rt, id, time.Second, "check")
	require.ErrorContains(t, err, id)
	require.ErrorContains(t, err, "exited")
	assert.Zero(t, got)
}

// A command whose container terminates has the result of the runtime: the command was killed.
func TestCRICommandOfTerminatedContainerIsKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, id := startScripted(t, func(ctx context.Context, _ []string) (cri.ExecResult, error) {
			<-ctx.Done()
			return cri.ExecResult{}, ctx.Err()
		})
		begun := time.Now()
		time.AfterFunc(time.Second, func() { assert.NoError(t, rt.StopContainer(t.Context(), id, 0)) })
		got, err := probeIn(t, rt, id, time.Minute, "sleep", "9")
		require.NoError(t, err)
		assert.Equal(t, probe.Result{Outcome: probe.Failure}, got)
		assert.Equal(t, time.Second, time.Since(begun))
	})
}

func TestCRIPanicsWithoutRuntime(t *testing.T) {
	assert.PanicsWithValue(t, "podprobe.CRI: argument runtime is nil: required, such as a *remote.Client", func() { podprobe.CRI(nil) })
}
