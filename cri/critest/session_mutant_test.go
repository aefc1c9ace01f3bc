// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package critest_test

import (
	"context"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/cri/process"
	"github.com/seed81659283/nodeagent/internal/suite/suitetest"
)

// sessionMutantVariable is the environment variable that selects the mutant for TestSessionMutant.
const sessionMutantVariable = "SESSIONTEST_MUTANT"

// sessionMutant is a session runner that violates one sentence of the documentation.
type sessionMutant struct {
	cri.SessionRunner
	exec    func(ctx context.Context, next cri.SessionRunner, id string, cmd []string, s cri.Session) (int, error)
	attach  func(ctx context.Context, next cri.SessionRunner, id string, s cri.Session) error
	forward func(ctx context.Context, next cri.SessionRunner, id string, port int32, conn io.ReadWriteCloser) error
}

func (m sessionMutant) RunExec(ctx context.Context, id string, cmd []string, s cri.Session) (int, error) {
	if m.exec == nil {
		return m.SessionRunner.RunExec(ctx, id, cmd, s)
	}
	return m.exec(ctx, m.SessionRunner, id, cmd, s)
}

func (m sessionMutant) RunAttach(ctx context.Context, id string, s cri.Session) error {
	if m.attach == nil {
		return m.SessionRunner.RunAttach(ctx, id, s)
	}
	return m.attach(ctx, m.SessionRunner, id, s)
}

func (m sessionMutant) RunPortForward(ctx context.Context, id string, port int32, conn io.ReadWriteCloser) error {
	if m.forward == nil {
		return m.SessionRunner.RunPortForward(ctx, id, port, conn)
	}
	return m.forward(ctx, m.SessionRunner, id, port, conn)
}

// firstBytes passes only the first bytes to a writer.
type firstBytes struct {
	to   io.Writer
	left int
}

func (f *firstBytes) Write(p []byte) (int, error) {
	n := min(f.left, len(p))
	f.left -= n
	if _, err := f.to.Write(p[:n]); err != nil {
		return 0, err
	}
	return len(p), nil
}

// sessionMutants each violate one sentence, which the case test detects.
var sessionMutants = map[string]struct {
	test, broken string
	mutant       sessionMutant
}{
	"output is cut": {"exec/slow_client", "however slow its client is", sessionMutant{
		exec: func(ctx context.Context, next cri.SessionRunner, id string, cmd []string, s cri.Session) (int, error) {
			s.Stdout = &firstBytes{s.Stdout, 50_000}
			return next.RunExec(ctx, id, cmd, s)
		},
	}},
	"exit code is an error": {"exec/exit_codes", "A non-zero exit code is not an error", sessionMutant{
		exec: func(ctx context.Context, next cri.SessionRunner, id string, cmd []string, s cri.Session) (int, error) {
			code, err := next.RunExec(ctx, id, cmd, s)
			if err == nil && code != 0 {
				err = io.ErrUnexpectedEOF
			}
			return code, err
		},
	}},
	"command outlives its client": {"exec/client_leaves", "kills the command and its child processes", sessionMutant{
		exec: func(ctx context.Context, next cri.SessionRunner, id string, cmd []string, s cri.Session) (int, error) {
			done := make(chan struct{})
			var code int
			var err error
			go func() {
				code, err = next.RunExec(context.WithoutCancel(ctx), id, cmd, s)
				close(done)
			}()
			select {
			case <-done:
				return code, err
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
		},
	}},
	"end of ctx without cause": {"exec/client_leaves", "returns the cause of ctx", sessionMutant{
		exec: func(ctx context.Context, next cri.SessionRunner, id string, cmd []string, s cri.Session) (int, error) {
			code, err := next.RunExec(ctx, id, cmd, s)
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return code, err
		},
	}},
	"no terminal": {"exec/terminal", "TTY allocates a terminal", sessionMutant{
		exec: func(ctx context.Context, next cri.SessionRunner, id string, cmd []string, s cri.Session) (int, error) {
			if s.TTY {
				_, err := io.WriteString(s.Stdout, "terminal\n")
				return 5, err
			}
			return next.RunExec(ctx, id, cmd, s)
		},
	}},
	"stdin never ends": {"exec/no_stdin", "nil: empty", sessionMutant{
		exec: func(ctx context.Context, next cri.SessionRunner, id string, cmd []string, s cri.Session) (int, error) {
			if s.Stdin == nil {
				s.Stdin = &endlessInput{}
			}
			return next.RunExec(ctx, id, cmd, s)
		},
	}},
	"exit of the container is an error": {"attach/end", "It returns nil when the container has exited", sessionMutant{
		attach: func(ctx context.Context, next cri.SessionRunner, id string, s cri.Session) error {
			if err := next.RunAttach(ctx, id, s); err != nil {
				return err
			}
			return io.EOF
		},
	}},
	"connection stays open": {"forward/refused", "It closes conn.", sessionMutant{
		forward: func(ctx context.Context, next cri.SessionRunner, id string, port int32, conn io.ReadWriteCloser) error {
			err := next.RunPortForward(ctx, id, port, neverClosed{conn, conn})
			_, _ = io.WriteString(conn, "still here")
			return err
		},
	}},
}

// endlessInput yields one line as stdin of a session without stdin.
type endlessInput struct{ said bool }

func (e *endlessInput) Read(p []byte) (int, error) {
	if e.said {
		return 0, io.EOF
	}
	e.said = true
	return copy(p, "something\n"), nil
}

// neverClosed is a connection that ignores Close.
type neverClosed struct {
	io.Reader
	io.Writer
}

func (neverClosed) Close() error { return nil }

// TestSessionSuiteFindsFaults runs the suite for each mutant in a separate process, because it fails, and requires that the
// failure quotes the violated sentence.
func TestSessionSuiteFindsFaults(t *testing.T) {
	for name, m := range sessionMutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suitetest.FindsFault(t, sessionMutantVariable, name, m.test, m.broken)
		})
	}
}

func TestSessionMutant(t *testing.T) {
	m, ok := sessionMutants[os.Getenv(sessionMutantVariable)]
	if !ok {
		t.Skip("for TestSessionSuiteFindsFaults")
	}
	critest.TestSessions(t, critest.SessionFixture{New: func(t *testing.T) (cri.Runtime, cri.SessionRunner) {
		rt, err := process.Open(t.TempDir(), process.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, rt.Close()) })
		one := m.mutant
		one.SessionRunner = rt
		return rt, one
	}})
}
