// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
)

func TestSummaryHasCgroupValuesWhileRuntimeHangs(t *testing.T) {
	synctest.Test(t, testHangingRuntime)
}

func testHangingRuntime(t *testing.T) {
	h := newTestNode(t)
	h.opts.Timeout, h.opts.SignalTimeout = 200*time.Millisecond, 50*time.Millisecond
	h.opts.RuntimePeriod = time.Nanosecond // list at each measurement
	h.pod("web", cgroups.Burstable, mib)
	stopped := make(chan struct{})
	var hangs bool
	h.via.Around = func(ctx context.Context, _, _ string, call func(context.Context) error) error {
		h.mu.Lock()
		wait := hangs
		h.mu.Unlock()
		if wait {
			<-stopped // the runtime is stopped, so that it ignores the context too
		}
		return call(ctx)
	}
	c := h.collector()
	_, err := c.Summary(t.Context())
	require.NoError(t, err)
	h.mu.Lock()
	hangs = true
	h.mu.Unlock()
	time.Sleep(time.Second)
	begin := time.Now()
	for range 5 {
		s, err := c.Summary(t.Context())
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "runtime list: no answer for ")
		require.Len(t, s.Pods, 1, "the pods of the last list")
		assert.EqualValues(t, mib, *s.Pods[0].Memory.UsageBytes)
		sig, _ := c.Signals(t.Context())
		assert.NotNil(t, sig.Memory)
		assert.NotNil(t, sig.ImageFs)
	}
	assert.LessOrEqual(t, time.Since(begin), 2*time.Second, "only one measurement waits for the runtime")
	time.Sleep(time.Minute)
	assert.Len(t, c.HungCalls(), 3, "one call each of list, image usage and layers")
	close(stopped)
	synctest.Wait()
	assert.Empty(t, c.HungCalls())
	_, err = c.Summary(t.Context())
	assert.NoError(t, err)
}

func TestSignalsOmitHungMountAfterOneStatfs(t *testing.T) {
	synctest.Test(t, testDeadMount)
}

func testDeadMount(t *testing.T) {
	h := newTestNode(t)
	h.opts.Timeout, h.opts.SignalTimeout = 200*time.Millisecond, 50*time.Millisecond
	c := h.collector()
	_, err := c.Signals(t.Context())
	require.NoError(t, err)
	dead := make(chan struct{})
	h.mu.Lock()
	h.hang["/critest"], h.asked = dead, 0
	h.mu.Unlock()
	for i := range 20 {
		begin := time.Now()
		s, err := c.Signals(t.Context())
		assert.ErrorContains(t, err, "imagefs /critest: no answer for ")
		assert.Nil(t, s.ImageFs)
		assert.NotNil(t, s.Memory)
		assert.NotNil(t, s.NodeFs)
		if i > 0 {
			assert.Zero(t, time.Since(begin), "no signal waits for a call that hangs already")
		}
	}
	h.mu.Lock()
	assert.Equal(t, 21, h.asked, "20 calls for nodefs, and one for the hung file system")
	h.mu.Unlock()
	time.Sleep(time.Minute)
	require.Len(t, c.HungCalls(), 1)
	assert.Equal(t, "/critest", c.HungCalls()[0].Path)
	close(dead)
	synctest.Wait()
	assert.Empty(t, c.HungCalls())
	h.mu.Lock()
	delete(h.hang, "/critest")
	h.mu.Unlock()
	_, err = c.Signals(t.Context())
	assert.NoError(t, err)
}
