// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package shutdown_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/login1/login1test"
	"github.com/seed81659283/nodeagent/shutdown"
)

// machine is a fake logind with an Inhibitor. It records the calls of the Inhibitor in order.
type machine struct {
	*shutdown.Inhibitor
	logind *login1test.Logind
	stop   func()
	state  string

	mu    sync.Mutex // guards the fields below
	calls []string
	slow  chan struct{} // closed when pods named slow may stop
}

func (m *machine) record(call string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, call)
}

func (m *machine) recorded() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.calls...)
}

// start runs an inhibitor until the test ends.
func start(t *testing.T, pods []*corev1.Pod, change ...func(*machine, *shutdown.Options)) *machine {
	t.Helper()
	dir := t.TempDir()
	logind, err := login1test.Start(filepath.Join(dir, "bus"))
	require.NoError(t, err)
	t.Cleanup(logind.Close)
	logind.ConfigDir = filepath.Join(dir, "logind.conf.d")
	m := &machine{logind: logind, state: dir, slow: make(chan struct{})}
	o := shutdown.Options{
		Periods: shutdown.Periods(3*s, s), Socket: filepath.Join(dir, "bus"), ConfigDir: logind.ConfigDir, StateDir: dir,
		Pods: func() []*corev1.Pod { return pods },
		Stop: func(ctx context.Context, p *corev1.Pod, grace time.Duration) error {
			m.record("stop " + p.Name + " " + grace.String())
			if p.Name == "slow" {
				select {
				case <-m.slow:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		},
		ReportNotReady: func(context.Context) error {
			m.record("not ready " + map[bool]string{true: "shutting down", false: "not shutting down"}[m.ShuttingDown()])
			return nil
		},
		FlushStatuses: func(context.Context) error {
			m.record("flush")
			return nil
		},
		Event: func(message string) { m.record(message) },
		Hooks: shutdown.Hooks{ShutdownCompleted: func(time.Time) { m.record("ended") }, Error: func(err error) { m.record("error " + err.Error()) }},
	}
	for _, c := range change {
		c(m, &o)
	}
	m.Inhibitor, err = shutdown.New(o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	m.stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	t.Cleanup(m.stop)
	return m
}

func (m *machine) eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, 60*s, time.Millisecond, "%s: %v", what, m.recorded())
}

func (m *machine) watching(t *testing.T) {
	t.Helper()
	m.eventually(t, "watching", func() bool { return m.WatchError() == nil && m.logind.InhibitorCount() == 1 })
}

// The node is reported first, then pods are stopped by priority, then statuses are flushed, and then the machine shuts down.
func TestShutdownReportsStopsFlushesAndReleases(t *testing.T) {
	m := start(t, []*corev1.Pod{pod("critical", shutdown.CriticalPriority, 30), pod("web", 0, 30), pod("short", 0, 1)}, func(m *machine, o *shutdown.Options) {
		o.Periods = shutdown.Periods(40*s, 20*s) // without waiting for unmounts after the period
		o.FlushStatuses = func(context.Context) error {
			m.record("flush")
			assert.Equal(t, 1, m.logind.InhibitorCount())
			return nil
		}
		o.AwaitUnmount = func(_ context.Context, pods []*corev1.Pod) error {
			m.record("unmounted " + pods[0].Name)
			return nil
		}
	})
	m.watching(t)
	assert.False(t, m.ShuttingDown())
	m.logind.Shutdown()
	m.eventually(t, "released", func() bool { return m.logind.InhibitorCount() == 0 })
	calls := m.recorded()
	require.Len(t, calls, 9)
	assert.ElementsMatch(t, []string{"stop web 20s", "stop short 1s"}, calls[2:4])
	assert.Equal(t, []string{"Shutdown manager detected shutdown event", "not ready shutting down"}, calls[:2])
	assert.Equal(t, []string{"unmounted web", "stop critical 20s", "unmounted critical", "flush", "ended"}, calls[4:])
	assert.True(t, m.ShuttingDown())

	var state struct{ StartTime, EndTime time.Time }
	data, err := os.ReadFile(filepath.Join(m.state, "graceful_node_shutdown_state"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &state))
	assert.False(t, state.StartTime.IsZero())
	assert.False(t, state.EndTime.Before(state.StartTime))

	m.logind.CancelShutdown()
	m.eventually(t, "a new inhibitor", func() bool { return m.logind.InhibitorCount() == 1 })
	assert.False(t, m.ShuttingDown())
	assert.ErrorContains(t, m.Run(t.Context()), "second call of Run")
}

// A pod that does not stop delays the shutdown until the end of its group's period.
func TestSlowPodDelaysShutdownByItsGroupTime(t *testing.T) {
	m := start(t, []*corev1.Pod{pod("slow", 0, 30), pod("critical", shutdown.CriticalPriority, 30)})
	m.watching(t)
	begin := time.Now()
	m.logind.Shutdown()
	m.eventually(t, "released", func() bool { return m.logind.InhibitorCount() == 0 })
	assert.Equal(t, []string{"stop slow 2s", "error stop pod default/slow: context deadline exceeded", "stop critical 1s", "flush", "ended"}, m.recorded()[2:])
	assert.GreaterOrEqual(t, time.Since(begin), 2*s)
}

// After a canceled shutdown no further group is stopped. The next shutdown is delayed again, although the connection was
// lost in between.
func TestCanceledShutdownStopsNoFurtherGroup(t *testing.T) {
	m := start(t, []*corev1.Pod{pod("slow", 0, 30), pod("critical", shutdown.CriticalPriority, 30)}, func(_ *machine, o *shutdown.Options) {
		o.Periods = shutdown.Periods(60*s, s)
	})
	m.watching(t)
	m.logind.Shutdown()
	m.eventually(t, "stopping", func() bool { return len(m.recorded()) == 3 })
	m.logind.CloseConnections()
	m.logind.CancelShutdown()
	m.eventually(t, "canceled", func() bool { return !m.ShuttingDown() && m.logind.InhibitorCount() == 1 })
	assert.NotContains(t, m.recorded(), "stop critical 1s")
	assert.NotContains(t, m.recorded(), "ended")
	assert.Contains(t, m.recorded(), "Shutdown manager detected shutdown cancellation")
	close(m.slow)
	m.watching(t)
	m.logind.Shutdown()
	m.eventually(t, "released", func() bool { return m.logind.InhibitorCount() == 0 })
	assert.Contains(t, m.recorded(), "stop critical 1s")
}

// An agent that starts during a shutdown stops its pods too.
func TestAgentStartedDuringShutdownStopsPods(t *testing.T) {
	m := start(t, []*corev1.Pod{pod("web", 0, 30)}, func(m *machine, _ *shutdown.Options) { m.logind.Shutdown() })
	m.eventually(t, "ended", func() bool { h := m.recorded(); return len(h) > 0 && h[len(h)-1] == "ended" })
	assert.Contains(t, m.recorded(), "stop web 2s")
}

// The Inhibitor raises InhibitDelayMaxSec of logind. If that fails, it reports the error and retries.
func TestInhibitDelayIsRaisedAndRetried(t *testing.T) {
	m := start(t, nil, func(_ *machine, o *shutdown.Options) { o.Periods = shutdown.Periods(90*s, 10*s) })
	m.watching(t)
	text, err := os.ReadFile(filepath.Join(m.logind.ConfigDir, "99-kubelet.conf"))
	require.NoError(t, err)
	assert.Contains(t, string(text), "InhibitDelayMaxSec=97\n")

	m = start(t, nil, func(m *machine, o *shutdown.Options) {
		o.Periods = shutdown.Periods(90*s, 10*s)
		m.logind.SetDenied("KillUnit", true)
	})
	m.eventually(t, "the error", func() bool { return len(m.recorded()) > 0 })
	require.EqualError(t, m.WatchError(), "reload logind: Permission denied")
	m.logind.SetDenied("KillUnit", false)
	m.watching(t)
	assert.Equal(t, []string{"error reload logind: Permission denied"}, m.recorded())
}

// Run releases the inhibitor when it returns. Errors of the functions in Options do not stop a shutdown.
func TestErrorsDoNotStopShutdownAndRunReleasesInhibitor(t *testing.T) {
	m := start(t, []*corev1.Pod{pod("web", 0, 1)}, func(m *machine, o *shutdown.Options) {
		o.ReportNotReady = func(context.Context) error { return errors.New("no API server") }
		o.FlushStatuses = func(context.Context) error { return errors.New("no API server either") }
		o.StateDir = filepath.Join(m.state, "none")
	})
	m.watching(t)
	m.logind.Shutdown()
	m.eventually(t, "released", func() bool { return m.logind.InhibitorCount() == 0 })
	assert.Contains(t, m.recorded(), "error show the node as not ready: no API server")
	assert.Contains(t, m.recorded(), "error send the statuses of pods: no API server either")
	assert.Contains(t, m.recorded(), "stop web 1s")
	m.logind.CancelShutdown()
	m.watching(t)
	m.stop()
	m.eventually(t, "released", func() bool { return m.logind.InhibitorCount() == 0 })
}

func TestNewReturnsErrorForInvalidOptions(t *testing.T) {
	pods := func() []*corev1.Pod { return nil }
	stop := func(context.Context, *corev1.Pod, time.Duration) error { return nil }
	for want, o := range map[string]shutdown.Options{
		"Options.Periods: required":                                  {},
		"Options.Pods: required":                                     {Periods: shutdown.Periods(s, 0)},
		"Options.Stop: required":                                     {Periods: shutdown.Periods(s, 0), Pods: pods},
		"Options.Periods[1].Priority 0: there is another":            {Periods: []shutdown.Period{{0, s}, {0, 2 * s}}, Pods: pods, Stop: stop},
		"Options.Periods[0].GracePeriod 1.5s: must be whole seconds": {Periods: []shutdown.Period{{0, 1500 * time.Millisecond}}, Pods: pods, Stop: stop},
		"Options.Periods[0].GracePeriod -1s: must be whole seconds":  {Periods: []shutdown.Period{{0, -s}}, Pods: pods, Stop: stop},
	} {
		_, err := shutdown.New(o)
		assert.ErrorContains(t, err, want)
	}
}
