// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/eviction/evictiontest"
)

// broken is an observer with two invalid readings and an error, whose numbers change with each call.
type broken struct {
	*evictiontest.Node
	n int64
}

func (b *broken) Signals(ctx context.Context) (eviction.Observation, error) {
	b.n++
	o, _ := b.Node.Signals(ctx)
	o.Readings = append(o.Readings,
		eviction.Reading{Signal: eviction.NodeFSAvailable, Capacity: 1, Available: 1 + b.n},
		eviction.Reading{Signal: eviction.ImageFSAvailable, Capacity: -b.n},
		eviction.Reading{Signal: eviction.Signal(fmt.Sprint("disk-", b.n)), Capacity: 1},
	)
	return o, fmt.Errorf("disk %d is lost", b.n)
}

// logText is a log for concurrent reads and writes.
type logText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A persistent error is logged once a minute, although its frequency and numbers vary.
func TestErrorsAreLoggedOncePerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &broken{Node: evictiontest.NewNode(evictiontest.Options{Memory: gi})}
		node.StartPod(evictiontest.Pod{Candidate: eviction.Candidate{UID: "a", Critical: true, Memory: gi - 50*mi}})
		var text logText
		var errs atomic.Int32
		start(t, node, node, eviction.Options{
			Rules: memoryRules(), Logger: slog.New(slog.NewTextHandler(&text, nil)), Hooks: eviction.Hooks{Error: func(error) { errs.Add(1) }},
		})
		for _, times := range []int{1, 2, 3} {
			time.Sleep(58 * time.Second)
			synctest.Wait()
			for _, what := range []string{"read signals: disk", "reading of nodefs.available", "reading of imagefs.available", "not a signal such as"} {
				require.Equal(t, times, strings.Count(text.String(), what), what)
			}
			time.Sleep(2 * time.Second)
		}
		require.Greater(t, errs.Load(), int32(4*170), "the hook is called for each error")
	})
}

// A node that stays short of memory because all its pods are critical reports this once.
func TestNoVictimIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := evictiontest.NewNode(evictiontest.Options{Memory: gi})
		static := candidate("static", 0, 1000*mi, 0)
		static.Critical = true
		node.StartPod(evictiontest.Pod{Candidate: static})
		log := &logText{}
		var hooked []eviction.NoVictim
		var mu sync.Mutex
		e := start(t, node, node, eviction.Options{
			Rules: memoryRules(), Logger: slog.New(slog.NewTextHandler(log, nil)),
			Hooks: eviction.Hooks{NoVictim: func(n eviction.NoVictim) {
				mu.Lock()
				defer mu.Unlock()
				hooked = append(hooked, n)
			}},
		})
		time.Sleep(10 * time.Minute)
		require.Equal(t, []eviction.Condition{eviction.MemoryPressure}, e.Status().Conditions)
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, []eviction.NoVictim{{Signal: eviction.MemoryAvailable, Pods: 1, Critical: 1}}, hooked)
		require.Equal(t, 1, strings.Count(log.String(), "no pod can be evicted"), log.String())
		require.Contains(t, log.String(), "critical=1")
	})
}

// A program that does not call Run gets an error within 10 s.
func TestMissingRunIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := evictiontest.NewNode(evictiontest.Options{Memory: gi})
		var told []error
		_, err := eviction.New(node, node, eviction.Options{
			Rules: memoryRules(), Hooks: eviction.Hooks{Error: func(err error) { told = append(told, err) }},
		})
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Len(t, told, 1)
		require.ErrorContains(t, told[0], "eviction.Evictor.Run is not running")
	})
}
