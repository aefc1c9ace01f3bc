// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package logs_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri/logs"
)

// burst is a container that writes at a given rate, its rotator, and the observed rotations.
type burst struct {
	*container
	dir string

	mu        sync.Mutex // guards the fields below
	largest   int64      // largest rotated file
	rotations int
	packed    int
	failed    []error
}

func (b *burst) startRotator(t *testing.T, p logs.Policy) *logs.Rotator {
	t.Helper()
	r, err := logs.NewRotator(b, logs.RotatorOptions{Policy: p, Hooks: logs.Hooks{
		LogRotated: func(_ logs.Log, _ string, size int64) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.rotations++
			b.largest = max(b.largest, size)
		},
		FileCompressed: func(logs.Log, string, int64) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.packed++
		},
		RotationFailed: func(_ logs.Log, err error, _ time.Duration) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.failed = append(b.failed, err)
		},
	}})
	require.NoError(t, err)
	r.SetLogs([]logs.Log{{ContainerID: "a", Path: b.path}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	return r
}

// writeAtRate writes lines at a rate in bytes per second for duration d.
func (b *burst) writeAtRate(t *testing.T, rate int, d time.Duration) (written int) {
	t.Helper()
	line := "2016-10-20T18:39:20.576064430Z stdout F " + strings.Repeat("GET /healthz 200 ", 60) + "\n"
	lines := []byte(strings.Repeat(line, 64))
	for start := time.Now(); time.Since(start) < d; {
		if due := int(time.Since(start).Seconds() * float64(rate)); due < written {
			time.Sleep(time.Millisecond) // paces the writer
			continue
		}
		b.container.mu.Lock()
		n, err := b.file.Write(lines)
		b.container.mu.Unlock()
		require.NoError(t, err)
		written += n
	}
	return written
}

// measureLargest returns the largest total size of the files until stop is closed.
func (b *burst) measureLargest(stop <-chan struct{}) (largest int64) {
	for {
		var sum int64
		entries, _ := os.ReadDir(b.dir)
		for _, e := range entries {
			if info, err := e.Info(); err == nil {
				sum += info.Size()
			}
		}
		largest = max(largest, sum)
		select {
		case <-stop:
			return largest
		case <-time.After(time.Millisecond):
		}
	}
}

func (b *burst) compressedCount() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.packed
}

// A container writes 100 MB/s for 3 s. The files of its log together stay within the documented limit: the budget plus the
// output during two rotations.
func TestLogSizeStaysWithinMaxBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("writes several hundred MB")
	}
	runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(1)
	const (
		rate      = 100_000_000
		burstTime = 3 * time.Second
	)
	policy := logs.Policy{MaxSize: 10 << 20, MaxFiles: 5}
	b := &burst{dir: t.TempDir()}
	b.container = newContainer(t, filepath.Join(b.dir, "0.log"))
	b.startRotator(t, policy)

	stop, sum := make(chan struct{}), make(chan int64)
	go func() { sum <- b.measureLargest(stop) }()
	written := b.writeAtRate(t, rate, burstTime)
	t.Log("the burst has ended; now the rotator has time to compress")
	for start := time.Now(); b.compressedCount() == 0; {
		b.writeAtRate(t, rate/25, 100*time.Millisecond)
		require.Less(t, time.Since(start), time.Minute)
	}
	close(stop)
	largest := <-sum

	b.mu.Lock()
	defer b.mu.Unlock()
	reaction := max(0, b.largest-policy.MaxSize)
	t.Logf("%d MB written at %d MB/s, %d rotations, %d compressed", written/1e6,
		int(float64(written)/burstTime.Seconds()/1e6), b.rotations, b.packed)
	t.Logf("the largest total was %.1f MiB, the budget is %.1f MiB, the longest rotation let %.1f MiB through",
		toMiB(largest), toMiB(policy.MaxBytes()), toMiB(reaction))
	assert.LessOrEqual(t, largest, policy.MaxBytes()+2*reaction)
	assert.Less(t, reaction, int64(2*rate), "a rotation takes less than two seconds, even on a busy machine")
	assert.Empty(t, b.failed)
}

// A quiet log is not polled, and is rotated as soon as it reaches MaxSize.
func TestQuietLogIsRotatedByInotify(t *testing.T) {
	b := &burst{dir: t.TempDir()}
	b.container = newContainer(t, filepath.Join(b.dir, "0.log"))
	b.printBytes(t, 1000)
	r := b.startRotator(t, small)
	require.Eventually(t, func() bool { return b.reopenCount() == 1 }, time.Minute, time.Millisecond)
	start := time.Now()
	for i := range 10 {
		require.Eventually(t, func() bool { return r.Watched() == 1 }, time.Minute, time.Millisecond)
		b.printBytes(t, 1000)
		require.Eventually(t, func() bool { return b.reopenCount() == i+2 }, time.Minute, time.Millisecond)
	}
	assert.Less(t, time.Since(start), 50*time.Second, "ten rotations by polling would take twice as long")
}

// The follower of a log that is rotated repeatedly misses no output as long as the files exist.
func TestFollowerMissesNothingDuringBurst(t *testing.T) {
	b := &burst{dir: t.TempDir()}
	b.container = newContainer(t, filepath.Join(b.dir, "0.log"))
	b.startRotator(t, logs.Policy{MaxSize: 50_000, MaxFiles: 40})
	l := new(runningState)
	s, wait := startFollow(t, b.path, logs.ReadOptions{Running: l.isRunning})
	for b.reopenCount() < 20 {
		b.printLines(t, 100)
		time.Sleep(time.Millisecond) // paces the writer
	}
	l.setState(true, nil)
	require.NoError(t, wait())
	assert.True(t, numberLines(0, b.next) == s.String(), "lines are lost or duplicated among %d", b.next)
}

func toMiB(n int64) float64 { return float64(n) / (1 << 20) }
