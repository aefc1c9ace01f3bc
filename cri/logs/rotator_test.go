// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs_test

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/logs"
)

// node is a set of containers with their rotator.
type node struct {
	*logs.Rotator
	containers map[string]*container

	mu     sync.Mutex // guards errors
	errors []string   // calls of Hooks.RotationFailed
}

func (n *node) ReopenContainerLog(ctx context.Context, id string) error {
	return n.containers[id].ReopenContainerLog(ctx, id)
}

func (n *node) reportedErrors() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.errors...)
}

// startNode runs a rotator for containers with these names until the test ends.
func startNode(t *testing.T, p logs.Policy, names ...string) *node {
	t.Helper()
	n := &node{containers: make(map[string]*container)}
	var err error
	n.Rotator, err = logs.NewRotator(n, logs.RotatorOptions{Policy: p, Hooks: logs.Hooks{
		RotationFailed: func(l logs.Log, err error, retry time.Duration) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.errors = append(n.errors, fmt.Sprintf("%s: %v: %v", l.ContainerID, retry, err))
		},
	}})
	require.NoError(t, err)
	n.Poll()
	var list []logs.Log
	for _, name := range names {
		c := newContainer(t, filepath.Join(t.TempDir(), "0.log"))
		n.containers[name] = c
		list = append(list, logs.Log{ContainerID: name, Path: c.path})
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	n.SetLogs(list)
	return n
}

// listFiles returns the files in the directory of a log, each with its size.
func listFiles(t *testing.T, c *container) string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(c.path))
	require.NoError(t, err)
	var b strings.Builder
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		if strings.HasSuffix(e.Name(), ".gz") {
			fmt.Fprintf(&b, "%s ", e.Name())
		} else {
			fmt.Fprintf(&b, "%s=%d ", e.Name(), info.Size())
		}
	}
	return strings.TrimSpace(b.String())
}

// advanceTime advances the virtual time by d and waits until all due work is done.
func advanceTime(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

var small = logs.Policy{MaxSize: 1000, MaxFiles: 3}

// RunningLogs skips exited containers and containers without a log.
func TestRunningLogsSkipsExitedContainers(t *testing.T) {
	require.Empty(t, logs.RunningLogs(nil))
	web := cri.PodIdentity{UID: "u", Name: "web", Namespace: "shop"}
	require.Equal(t, []logs.Log{
		{ContainerID: "1", Path: "/a/0.log", Pod: web, Container: "nginx"}, {ContainerID: "4", Path: "/b/0.log"},
	}, logs.RunningLogs([]cri.Pod{
		{PodIdentity: web, Containers: []cri.Container{
			{ID: "1", Name: "nginx", State: cri.ContainerRunning, LogPath: "/a/0.log"},
			{ID: "2", State: cri.ContainerExited, LogPath: "/a/1.log"},
			{ID: "3", State: cri.ContainerRunning},
		}},
		{Containers: []cri.Container{{ID: "4", State: cri.ContainerRunning, LogPath: "/b/0.log"}}},
	}))
}

// The clock of a bubble starts at midnight of 2000-01-01, in UTC.
func TestRotator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, small, "a")
		c := n.containers["a"]
		c.printBytes(t, 999)
		advanceTime(time.Minute)
		assert.Equal(t, "0.log=999", listFiles(t, c))

		c.printBytes(t, 41)
		advanceTime(time.Minute)
		assert.Equal(t, "0.log=0 0.log.20000101-000100=1040", listFiles(t, c), "the next poll rotates the log")

		c.printBytes(t, 1000)
		advanceTime(time.Minute)
		assert.Equal(t, "0.log=0 0.log.20000101-000100.gz 0.log.20000101-000200=1000", listFiles(t, c))
		file, err := os.Open(c.path + ".20000101-000100.gz")
		require.NoError(t, err)
		defer file.Close()
		z, err := gzip.NewReader(file)
		require.NoError(t, err)
		content, err := io.ReadAll(z)
		require.NoError(t, err)
		assert.Len(t, content, 1040)

		c.printBytes(t, 1000)
		advanceTime(time.Minute)
		assert.Equal(t, "0.log=0 0.log.20000101-000200.gz 0.log.20000101-000300=1000", listFiles(t, c))
		assert.Empty(t, n.reportedErrors())
	})
}

func TestRotationsWithinOneSecondAreNumbered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, logs.Policy{MaxSize: 1000, MaxFiles: 4}, "a")
		c := n.containers["a"]
		for range 300 {
			c.printBytes(t, 1000)
			advanceTime(9 * time.Millisecond)
			require.NotContains(t, listFiles(t, c), ".gz", "a file that will soon be removed is not compressed")
		}
		assert.Greater(t, c.reopenCount(), 100)
		plain := `^0.log=\d+( 0.log.20000101-000002_\d\d\d=\d+){2,3}$`
		assert.Regexp(t, plain, listFiles(t, c))
		advanceTime(2 * time.Second)
		packed := `^0.log=\d+( 0.log.20000101-000002_\d\d\d.gz){1,2} 0.log.20000101-000002_\d\d\d=\d+$`
		assert.Regexp(t, packed, listFiles(t, c), "files are compressed after the burst")
	})
}

func TestFailedReopenUndoesRename(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, small, "a", "b")
		a, b := n.containers["a"], n.containers["b"]
		a.modify(func(c *container) { c.failing = errors.New("runtime is busy") })
		a.printBytes(t, 1000)
		b.printBytes(t, 1000)
		advanceTime(time.Minute)
		assert.Equal(t, "0.log=1000", listFiles(t, a), "the log has its name again")
		assert.Contains(t, listFiles(t, b), "0.log=0 ", "other logs are rotated")
		reported := n.reportedErrors()
		require.Len(t, reported, 12, "retries with a back-off of at most 10 s")
		assert.Equal(t, fmt.Sprintf("a: 100ms: rotate log %s: runtime is busy", a.path), reported[0])
		assert.True(t, strings.HasPrefix(reported[1], "a: 200ms: "), reported[1])
		assert.True(t, strings.HasPrefix(reported[11], "a: 10s: "), reported[11])

		a.modify(func(c *container) { c.failing = nil })
		advanceTime(10 * time.Second)
		assert.Contains(t, listFiles(t, a), "0.log=0 ")

		a.modify(func(c *container) { c.failing = errors.New("again") })
		a.printBytes(t, 1000)
		advanceTime(time.Second)
		assert.Equal(t, fmt.Sprintf("a: 100ms: rotate log %s: again", a.path), n.reportedErrors()[12], "the back-off starts over after a success")
	})
}

func TestReopenErrorAfterReopenKeepsNewFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, small, "a")
		c := n.containers["a"]
		c.modify(func(c *container) { c.late = true })
		c.printBytes(t, 1000)
		advanceTime(time.Minute)
		assert.Contains(t, listFiles(t, c), "=1000", "the new file is not overwritten")
		assert.Contains(t, listFiles(t, c), "0.log=0 ")
		assert.Equal(t, 1, c.reopenCount())
	})
}

func TestReopenTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, small, "a", "b")
		a, b := n.containers["a"], n.containers["b"]
		a.modify(func(c *container) { c.hang = true })
		a.printBytes(t, 1000)
		b.printBytes(t, 1000)
		advanceTime(2 * time.Second)
		assert.Contains(t, listFiles(t, b), "0.log=0 ", "a hanging container does not delay other logs")
		advanceTime(10 * time.Second)
		require.NotEmpty(t, n.reportedErrors())
		assert.Contains(t, n.reportedErrors()[0], context.DeadlineExceeded.Error())
	})
}

func TestMissingLogIsReopened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, small, "a")
		c := n.containers["a"]
		advanceTime(time.Minute)
		require.NoError(t, os.Rename(c.path, c.path+".20000101-000000"))
		advanceTime(time.Minute)
		assert.Equal(t, "0.log=0 0.log.20000101-000000=0", listFiles(t, c), "the runtime is called to reopen the missing log")
		assert.Equal(t, 1, c.reopenCount())
	})
}

// A runtime may report success without reopening the log.
func TestReopenWithoutEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls int
		r, err := logs.NewRotator(reopener(func() { calls++ }), logs.RotatorOptions{})
		require.NoError(t, err)
		r.Poll()
		r.SetLogs([]logs.Log{{ContainerID: "a", Path: filepath.Join(t.TempDir(), "0.log")}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, r.Run(ctx))
		assert.Equal(t, 12, calls, "with back-off")
	})
}

type reopener func()

func (f reopener) ReopenContainerLog(context.Context, string) error {
	f()
	return nil
}

// A previous agent process was stopped during compression.
func TestInterruptedCompressionIsCleanedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, logs.Policy{MaxSize: 1000, MaxFiles: 5}, "a")
		c := n.containers["a"]
		writeLog(t, c.path+".19991231-000000", "1")
		writeLog(t, c.path+".19991231-000000.tmp", "half")
		writeLog(t, c.path+".19991231-000001", "2")
		writeLog(t, c.path+".19991231-000002", "3")
		writeLog(t, c.path+".bak", "foreign")
		advanceTime(2 * time.Second)
		assert.Equal(t, "0.log=0 0.log.19991231-000000.gz 0.log.19991231-000001.gz 0.log.19991231-000002=1 0.log.bak=7", listFiles(t, c))
	})
}

// A file that does not become smaller is not compressed if this would exceed the budget.
func TestCompressionStaysWithinBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, small, "a")
		c := n.containers["a"]
		noise := make([]byte, 1000)
		_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
		writeLog(t, c.path+".19991231-000000", string(noise))
		writeLog(t, c.path+".19991231-000001", string(noise))
		c.printBytes(t, 900)
		advanceTime(time.Minute)
		assert.Equal(t, "0.log=900 0.log.19991231-000000=1000 0.log.19991231-000001=1000", listFiles(t, c))
		assert.Empty(t, n.reportedErrors())

		c.printBytes(t, 100)
		advanceTime(time.Minute)
		assert.Equal(t, "0.log=0 0.log.19991231-000001.gz 0.log.20000101-000100=1000", listFiles(t, c), "the smaller log leaves room for compression")
	})
}

func TestSetLogsStartsAndStopsKeepers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, small, "a", "b")
		a, b := n.containers["a"], n.containers["b"]
		advanceTime(time.Minute)
		n.SetLogs([]logs.Log{{ContainerID: "b", Path: b.path}})
		synctest.Wait()
		a.printBytes(t, 1000)
		b.printBytes(t, 1000)
		advanceTime(time.Minute)
		assert.Equal(t, "0.log=1000", listFiles(t, a), "a log that is no longer listed is not rotated")
		assert.Contains(t, listFiles(t, b), "0.log=0 ")

		n.SetLogs([]logs.Log{{ContainerID: "a", Path: a.path}, {ContainerID: "b", Path: b.path}})
		advanceTime(time.Minute)
		assert.Contains(t, listFiles(t, a), "0.log=0 ", "listed again")

		n.containers["a2"] = a
		n.SetLogs(nil)
		n.SetLogs([]logs.Log{{ContainerID: "a2", Path: a.path}})
		synctest.Wait()
		a.printBytes(t, 1000)
		advanceTime(time.Minute)
		assert.Contains(t, listFiles(t, a), "0.log=0 ", "a log listed for another container is rotated")
		assert.Empty(t, n.reportedErrors())
	})
}

func TestIrregularLogsAreNotRotated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, small, "a")
		n.SetLogs([]logs.Log{{ContainerID: "dir", Path: t.TempDir()}})
		advanceTime(time.Second)
		require.NotEmpty(t, n.reportedErrors())
		assert.Contains(t, n.reportedErrors()[0], "not a regular file")
	})
}

func TestNewRotator(t *testing.T) {
	_, err := logs.NewRotator(reopener(func() {}), logs.RotatorOptions{Policy: logs.Policy{MaxFiles: 1}})
	assert.ErrorContains(t, err, "MaxFiles 1")
	_, err = logs.NewRotator(nil, logs.RotatorOptions{})
	require.ErrorContains(t, err, "argument runtime is nil")

	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, logs.Policy{MaxSize: -1}, "a")
		c := n.containers["a"]
		c.printBytes(t, 11<<20)
		advanceTime(time.Minute)
		assert.Equal(t, "0.log=11534336", listFiles(t, c), "a negative MaxSize disables rotation")
	})
}

var _ cri.LogReopener = (*node)(nil)
