// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// container writes a log like a runtime, and reopens it on request.
type container struct {
	path string

	mu      sync.Mutex // guards the fields below
	file    *os.File
	next    int         // number of the next line
	failing error       // error of ReopenContainerLog
	hang    bool        // ReopenContainerLog blocks until its context ends
	late    bool        // ReopenContainerLog opens the file, then fails
	calls   []time.Time // times of ReopenContainerLog
}

func newContainer(t testing.TB, path string) *container {
	t.Helper()
	c := &container{path: path}
	require.NoError(t, c.openLog())
	t.Cleanup(func() { c.file.Close() })
	return c
}

func (c *container) openLog() error {
	file, err := os.OpenFile(c.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return err
	}
	if c.file != nil {
		c.file.Close()
	}
	c.file = file
	return nil
}

func (c *container) ReopenContainerLog(ctx context.Context, _ string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, time.Now())
	if c.hang {
		<-ctx.Done()
		return ctx.Err()
	}
	if c.failing != nil {
		return c.failing
	}
	err := c.openLog()
	if c.late {
		return errors.Join(err, errLate)
	}
	return err
}

var errLate = errors.New("too late to answer")

// reopenCount returns how often the runtime was called to reopen the log.
func (c *container) reopenCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls)
}

// modify changes the container between two calls.
func (c *container) modify(apply func(*container)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	apply(c)
}

// printLines writes n numbered lines in one write.
func (c *container) printLines(t testing.TB, n int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var b []byte
	for range n {
		b = append(b, "2016-10-20T18:39:20.576064430Z stdout F "...)
		b = strconv.AppendInt(b, int64(c.next), 10)
		b = append(b, '\n')
		c.next++
	}
	_, err := c.file.Write(b)
	require.NoError(t, err)
}

// printBytes writes one line of n bytes.
func (c *container) printBytes(t testing.TB, n int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	b := make([]byte, n)
	copy(b, "2016-10-20T18:39:20.576064430Z stdout F ")
	b[n-1] = '\n'
	_, err := c.file.Write(b)
	require.NoError(t, err)
}
