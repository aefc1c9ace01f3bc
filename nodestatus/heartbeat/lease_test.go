// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package heartbeat_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/nodestatus/heartbeat"
)

// logs has the logged lines.
type logs struct {
	mu    sync.Mutex
	lines []string
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, strings.TrimSpace(string(b)))
	return len(b), nil
}

// with returns the lines that contain a text.
func (l *logs) with(text string) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

func (l *logs) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// run runs components until the test ends or stop is called.
func run(t *testing.T, runs ...func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, r := range runs {
		wg.Go(func() { assert.NoError(t, r(ctx)) })
	}
	stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	t.Cleanup(stop)
	return stop
}

func half() float64 { return 0.5 }

func node(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

func TestLeaseIsRenewedEveryQuarterOfItsDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.NewServer(apiservertest.Options{})
		defer server.Close()
		require.NoError(t, server.Put(node("n")))
		l, err := heartbeat.NewLease(server.Config(), heartbeat.LeaseOptions{NodeName: "n", Rand: half})
		require.NoError(t, err)
		defer run(t, l.Run)()
		begin := time.Now()
		time.Sleep(10 * time.Minute)
		synctest.Wait()

		lease, found := apiservertest.Get[*coordinationv1.Lease](server, corev1.NamespaceNodeLease, "n")
		require.True(t, found)
		uid, _ := apiservertest.Get[*corev1.Node](server, "", "n")
		assert.Equal(t, uid.UID, lease.OwnerReferences[0].UID)
		assert.Less(t, time.Since(lease.Spec.RenewTime.Time), 11*time.Second)
		assert.Equal(t, 1, server.CountRequests(apiservertest.Match{Verb: "create"}))
		updates := server.Requests(apiservertest.Match{Verb: "update", Resource: "leases"})
		assert.InDelta(t, 58, len(updates), 1, "one update in 10.2 s, the mean of 10 s and 4 %% more")
		assert.Equal(t, begin.Add(10200*time.Millisecond), updates[0].At)
		assert.Equal(t, 2, server.CountRequests(apiservertest.Match{Verb: "get"}), "one read of the lease and one of the node")
		assert.ErrorContains(t, l.Run(t.Context()), "second call of Run")
	})
}

// The API server hangs, rejects requests or becomes unavailable. The lease is renewed once the server responds, and the
// number of requests is bounded.
func TestLeaseIsRenewedAfterFaultsOfAPIServer(t *testing.T) {
	for name, test := range map[string]struct {
		fault  func(*apiservertest.Server) (remove func())
		within time.Duration // after the end of the fault
		most   int           // requests per minute
	}{
		"hang":              {func(s *apiservertest.Server) func() { return s.Hang("", "") }, 18 * time.Second, 8},
		"cut":               {func(s *apiservertest.Server) func() { return s.Disconnect("", "") }, 11 * time.Second, 45},
		"internal errors":   {func(s *apiservertest.Server) func() { return s.Fail("", "", 500) }, 11 * time.Second, 45},
		"too many requests": {func(s *apiservertest.Server) func() { return s.Fail("", "", 429) }, 11 * time.Second, 120},
		"conflicts":         {func(s *apiservertest.Server) func() { return s.Fail("update", "leases", 409) }, 11 * time.Second, 130},
		"away": {func(s *apiservertest.Server) func() {
			s.SetUnavailable(true)
			return func() { s.SetUnavailable(false) }
		}, 11 * time.Second, 45},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := apiservertest.NewServer(apiservertest.Options{})
				defer server.Close()
				require.NoError(t, server.Put(node("n")))
				var logs logs
				l, err := heartbeat.NewLease(server.Config(), heartbeat.LeaseOptions{NodeName: "n", Rand: half, Logger: logs.logger()})
				require.NoError(t, err)
				defer run(t, l.Run)()
				time.Sleep(time.Minute)
				remove := test.fault(server)
				server.ForgetRequests()
				time.Sleep(5 * time.Minute)
				assert.LessOrEqual(t, server.CountRequests(apiservertest.Match{}), 5*test.most)
				assert.LessOrEqual(t, len(logs.with("level=WARN")), 5*13, "two lines a round")
				remove()
				time.Sleep(test.within)
				lease, _ := apiservertest.Get[*coordinationv1.Lease](server, corev1.NamespaceNodeLease, "n")
				assert.Less(t, time.Since(lease.Spec.RenewTime.Time), test.within)
			})
		})
	}
}

// Two agents with one node name renew one lease in turn. Each of them reports the conflict once a minute.
func TestTwoAgentsOfOneLeaseReportConflictOncePerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.NewServer(apiservertest.Options{})
		defer server.Close()
		require.NoError(t, server.Put(node("n")))
		var logs logs
		var events []nodestatus.Event
		mine, err := heartbeat.NewLease(server.Config(), heartbeat.LeaseOptions{
			NodeName: "n", Logger: logs.logger(), Event: func(e nodestatus.Event) { events = append(events, e) },
		})
		require.NoError(t, err)
		theirs, err := heartbeat.NewLease(server.Config(), heartbeat.LeaseOptions{NodeName: "n"})
		require.NoError(t, err)
		stop := run(t, mine.Run)
		time.Sleep(time.Minute)
		require.Empty(t, events)
		defer run(t, theirs.Run)()
		time.Sleep(5 * time.Minute)
		stop()
		assert.InDelta(t, 5, len(events), 1)
		assert.Len(t, logs.with("another agent has the name of this node"), len(events))
		assert.Equal(t, nodestatus.Event{
			Type: "Warning", Reason: heartbeat.ReasonNameConflict, Message: `Another agent has the name of node n: its lease is renewed by "n"`,
		}, events[0])
	})
}

func TestNewLeaseReturnsErrorForInvalidOptions(t *testing.T) {
	config := &rest.Config{Host: "http://localhost"}
	for want, test := range map[string]struct {
		config *rest.Config
		o      heartbeat.LeaseOptions
	}{
		"LeaseOptions.NodeName: required":                           {config, heartbeat.LeaseOptions{}},
		"config is nil":                                             {nil, heartbeat.LeaseOptions{NodeName: "n"}},
		"LeaseOptions.Duration 1.5s: must be whole seconds":         {config, heartbeat.LeaseOptions{NodeName: "n", Duration: 1500 * time.Millisecond}},
		"LeaseOptions.Duration 3s: must be whole seconds, at least": {config, heartbeat.LeaseOptions{NodeName: "n", Duration: 3 * time.Second}},
		"LeaseOptions.Duration -4s: must be":                        {config, heartbeat.LeaseOptions{NodeName: "n", Duration: -4 * time.Second}},
	} {
		_, err := heartbeat.NewLease(test.config, test.o)
		assert.ErrorContains(t, err, want)
	}
}
