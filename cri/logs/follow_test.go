// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/logs"
)

// outputBuffer collects the output that a follower writes.
type outputBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (s *outputBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *outputBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// awaitText waits until the output equals text.
func (s *outputBuffer) awaitText(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return s.String() == text }, time.Minute, time.Millisecond,
		"want output %q, got %q", text, s)
}

// startFollow follows a log in a goroutine. The returned function waits for the end of the read and returns its error.
func startFollow(t *testing.T, path string, o logs.ReadOptions) (*outputBuffer, func() error) {
	t.Helper()
	s, done := new(outputBuffer), make(chan error, 1)
	o.Follow = true
	go func() { done <- logs.Read(t.Context(), path, s, s, o) }()
	return s, func() error {
		select {
		case err := <-done:
			return err
		case <-time.After(time.Minute):
			t.Fatal("Read does not return")
			return nil
		}
	}
}

// runningState is the state of a container that ReadOptions.Running reports.
type runningState struct {
	mu   sync.Mutex // guards the fields below
	over bool
	err  error
}

func (l *runningState) isRunning(context.Context) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.over, l.err
}

func (l *runningState) setState(over bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over, l.err = over, err
}

func numberLines(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

func TestFollowReadsUntilContainerExits(t *testing.T) {
	c, l := newContainer(t, filepath.Join(t.TempDir(), "0.log")), new(runningState)
	c.printLines(t, 5)
	s, wait := startFollow(t, c.path, logs.ReadOptions{TailLines: new(int64(2)), Running: l.isRunning})
	s.awaitText(t, numberLines(3, 5))
	c.printLines(t, 1)
	s.awaitText(t, numberLines(3, 6))

	t.Log("a line is shown when it is complete")
	_, err := io.WriteString(c.file, "2016-10-20T18:39:20Z stdout F 6")
	require.NoError(t, err)
	_, err = io.WriteString(c.file, "\n")
	require.NoError(t, err)
	s.awaitText(t, numberLines(3, 7))

	t.Log("the last output before the exit is shown, even an unfinished line")
	_, err = io.WriteString(c.file, "2016-10-20T18:39:20Z stdout F 7\n2016-10-20T18:39:20Z stdout F to")
	require.NoError(t, err)
	l.setState(true, nil)
	require.NoError(t, wait())
	assert.Equal(t, numberLines(3, 8)+"to", s.String())
}

func TestFollowReadsLogOfExitedContainer(t *testing.T) {
	c, l := newContainer(t, filepath.Join(t.TempDir(), "0.log")), &runningState{over: true}
	c.printLines(t, 5)
	s, wait := startFollow(t, c.path, logs.ReadOptions{Running: l.isRunning})
	require.NoError(t, wait())
	assert.Equal(t, numberLines(0, 5), s.String())
}

func TestFollowContinuesWhileRuntimeUnavailable(t *testing.T) {
	c := newContainer(t, filepath.Join(t.TempDir(), "0.log"))
	l := &runningState{err: &cri.Error{Op: "ContainerStatus", ID: "c", Err: cri.ErrUnavailable}}
	s, wait := startFollow(t, c.path, logs.ReadOptions{Running: l.isRunning})
	c.printLines(t, 5)
	s.awaitText(t, numberLines(0, 5))

	gone := &cri.Error{Op: "ContainerStatus", ID: "c", Err: cri.ErrNotFound}
	l.setState(false, gone)
	require.ErrorIs(t, wait(), cri.ErrNotFound)
	assert.Equal(t, numberLines(0, 5), s.String())
}

func TestFollowEndsWithContext(t *testing.T) {
	c := newContainer(t, filepath.Join(t.TempDir(), "0.log"))
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- logs.Read(ctx, c.path, io.Discard, nil, logs.ReadOptions{Follow: true}) }()
	cancel(errors.New("the client has hung up"))
	select {
	case err := <-done:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(time.Minute):
		t.Fatal("Read does not return")
	}
}

func TestFollowStopsAtLimitBytes(t *testing.T) {
	c := newContainer(t, filepath.Join(t.TempDir(), "0.log"))
	s, wait := startFollow(t, c.path, logs.ReadOptions{LimitBytes: new(int64(5))})
	c.printLines(t, 100)
	require.NoError(t, wait())
	assert.Equal(t, "0\n1\n2", s.String())
}

func TestFollowThroughSymlink(t *testing.T) {
	dir := t.TempDir()
	c := newContainer(t, filepath.Join(dir, "0.log"))
	link := filepath.Join(t.TempDir(), "pod_ns_c-id.log")
	require.NoError(t, os.Symlink(c.path, link))
	s, _ := startFollow(t, link, logs.ReadOptions{})
	c.printLines(t, 1)
	s.awaitText(t, numberLines(0, 1))
	require.NoError(t, os.Rename(c.path, c.path+".20260102-150405"))
	require.NoError(t, c.ReopenContainerLog(t.Context(), ""))
	c.printLines(t, 1)
	s.awaitText(t, numberLines(0, 2))
}

// The log is renamed, but the runtime reopens it late or never.
func TestFollowRenamedLogBeforeReopen(t *testing.T) {
	c := newContainer(t, filepath.Join(t.TempDir(), "0.log"))
	s, _ := startFollow(t, c.path, logs.ReadOptions{})
	c.printLines(t, 1)
	s.awaitText(t, numberLines(0, 1))
	rotated := c.path + ".20260102-150405"
	require.NoError(t, os.Rename(c.path, rotated))
	c.printLines(t, 1)
	s.awaitText(t, numberLines(0, 2))

	require.NoError(t, os.Rename(rotated, c.path))
	c.printLines(t, 1)
	s.awaitText(t, numberLines(0, 3))

	t.Log("a new file exists, and the runtime finishes a line in the old file")
	require.NoError(t, os.Rename(c.path, rotated))
	require.NoError(t, os.WriteFile(c.path, nil, 0o600))
	c.printLines(t, 1)
	s.awaitText(t, numberLines(0, 4))
	c.printLines(t, 1)
	s.awaitText(t, numberLines(0, 5))
	require.NoError(t, c.ReopenContainerLog(t.Context(), ""))
	c.printLines(t, 1)
	s.awaitText(t, numberLines(0, 6))
}

// Other programs rotate logs by copying and truncating, or with other names.
func TestFollowTruncatedOrForeignRenamedLog(t *testing.T) {
	c := newContainer(t, filepath.Join(t.TempDir(), "0.log"))
	s, _ := startFollow(t, c.path, logs.ReadOptions{})
	c.printLines(t, 3)
	s.awaitText(t, numberLines(0, 3))
	require.NoError(t, os.Truncate(c.path, 0))
	c.printLines(t, 1)
	s.awaitText(t, numberLines(0, 4))

	require.NoError(t, os.Rename(c.path, c.path+".1"))
	require.NoError(t, c.ReopenContainerLog(t.Context(), ""))
	c.printLines(t, 1)
	s.awaitText(t, numberLines(0, 5))
}

// slowOutput is the output of a follower that blocks in its writes.
type slowOutput struct {
	outputBuffer
	block chan struct{} // each write receives one value first
}

func (s *slowOutput) Write(p []byte) (int, error) {
	<-s.block
	return s.outputBuffer.Write(p)
}

// While the follower is blocked, its file is rotated three times; afterwards it reads all existing files.
func TestSlowFollowerReadsAllRotatedFiles(t *testing.T) {
	const own, second, third = ".20260102-150405", ".20260102-150406", ".20260102-150406_001"
	pack := func(t *testing.T, path string) {
		plain, err := os.ReadFile(path)
		require.NoError(t, err)
		writeLog(t, path+".gz", string(plain))
		require.NoError(t, os.Remove(path))
	}
	for _, test := range []struct {
		name string
		do   func(t *testing.T, path string)
	}{
		{"nothing else", func(*testing.T, string) {}},
		{"the file being read is removed", func(t *testing.T, path string) { require.NoError(t, os.Remove(path+own)) }},
		{"the file being read is compressed", func(t *testing.T, path string) { pack(t, path+own) }},
		{"the next file is compressed", func(t *testing.T, path string) { pack(t, path+second) }},
		{"the last file has no successor", func(t *testing.T, path string) {
			require.NoError(t, os.Rename(path, path+".20260102-150407"))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newContainer(t, filepath.Join(t.TempDir(), "0.log"))
			l, s, done := new(runningState), &slowOutput{block: make(chan struct{}, 1)}, make(chan error, 1)
			c.printLines(t, 10)
			go func() {
				done <- logs.Read(t.Context(), c.path, s, nil, logs.ReadOptions{Follow: true, Running: l.isRunning})
			}()
			s.block <- struct{}{}
			s.awaitText(t, numberLines(0, 10))
			c.printLines(t, 10) // the follower blocks while it writes these lines
			for _, suffix := range []string{own, second, third} {
				require.NoError(t, os.Rename(c.path, c.path+suffix))
				require.NoError(t, c.ReopenContainerLog(t.Context(), ""))
				c.printLines(t, 10)
			}
			test.do(t, c.path)
			l.setState(true, nil)
			close(s.block)
			select {
			case err := <-done:
				require.NoError(t, err)
			case <-time.After(time.Minute):
				t.Fatal("Read does not return")
			}
			assert.Equal(t, numberLines(0, 50), s.String())
		})
	}
}
