// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/probe"
)

func TestExecResultByExitCode(t *testing.T) {
	broken := errors.New("container is not running")
	for name, test := range map[string]struct {
		output string
		code   int
		err    error
		want   probe.Result
	}{
		"zero":            {output: "fine", want: probe.Result{Outcome: probe.Success, Output: "fine"}},
		"one":             {output: "sick", code: 1, want: probe.Result{Outcome: probe.Failure, Output: "sick"}},
		"a signal":        {code: 137, want: probe.Result{Outcome: probe.Failure}},
		"too much output": {output: strings.Repeat("x", 11<<10), want: probe.Result{Outcome: probe.Success, Output: strings.Repeat("x", 10240)}},
		"not run":         {err: broken},
	} {
		var id string
		var command []string
		p, err := probe.NewExec(probe.ExecFunc(func(_ context.Context, c string, cmd []string) ([]byte, int, error) {
			id, command = c, cmd
			return []byte(test.output), test.code, test.err
		}), probe.ExecConfig{ContainerID: "c1", Command: []string{"check", "-x"}})
		require.NoError(t, err)
		got, err := probeOnce(t, p, long)
		require.ErrorIs(t, err, test.err, name)
		assert.Equal(t, test.want, got, name)
		assert.Equal(t, "c1", id)
		assert.Equal(t, []string{"check", "-x"}, command)
	}
}

// At the deadline the probe fails, for any error of the runtime.
func TestExecFailsAtTheDeadlineWithAnyError(t *testing.T) {
	synctest.Test(t, testExecOutOfTime)
}

func testExecOutOfTime(t *testing.T) {
	for _, cause := range []error{context.DeadlineExceeded, errors.New("signal: killed")} {
		p, err := probe.NewExec(probe.ExecFunc(func(ctx context.Context, _ string, _ []string) ([]byte, int, error) {
			<-ctx.Done()
			return nil, 0, cause
		}), probe.ExecConfig{ContainerID: "c1", Command: []string{"sleep", "9"}})
		require.NoError(t, err)
		got, err := probeOnce(t, p, soon)
		require.NoError(t, err)
		assert.Equal(t, probe.Result{Outcome: probe.Failure, Output: `command timed out: "sleep 9" timed out after 150ms`}, got)
	}
}

func TestNewExecRejectsInvalidArguments(t *testing.T) {
	none := probe.ExecFunc(func(context.Context, string, []string) ([]byte, int, error) { return nil, 0, nil })
	for want, c := range map[string]probe.ExecConfig{
		`field ContainerID: is empty`:                    {Command: []string{"a"}},
		`field Command: [] names no program`:             {ContainerID: "c"},
		`field Command[1]: "b\x00" contains a zero byte`: {ContainerID: "c", Command: []string{"a", "b\x00"}},
	} {
		_, err := probe.NewExec(none, c)
		require.EqualError(t, err, want)
	}
}
