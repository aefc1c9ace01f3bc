// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/hook"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
)

// takeEvents returns the events since the last call.
func (n *node) takeEvents() []podevents.Event {
	n.mu.Lock()
	defer n.mu.Unlock()
	events := n.podEvents
	n.podEvents = nil
	return events
}

// describeEvent returns "Reason container ID attempt", and the exit code if it is set.
func describeEvent(e podevents.Event) string {
	line := strings.TrimSpace(fmt.Sprintf("%s %s %s %d", e.Reason, e.Container, e.ContainerID, e.Attempt))
	if e.ExitCode != nil {
		line += fmt.Sprintf(" exit %d", *e.ExitCode)
	}
	return line
}

// An event has the container instance and its exit code.
func TestEventsNameTheContainerInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{
			"main":  critest.ExitAfter(time.Second, 3),
			"proxy": {Exec: func(context.Context, []string) (cri.ExecResult, error) { return cri.ExecResult{ExitCode: 1}, nil }},
		})})
		n := startAgent(t, rt, rt, lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}})
		pod := podtest.Pod("a")
		pod.Spec.InitContainers = []corev1.Container{podtest.Sidecar("proxy")}
		pod.Spec.InitContainers[0].Lifecycle = &corev1.Lifecycle{PreStop: podtest.Exec("bye")}
		n.set(pod)
		time.Sleep(15 * time.Second)
		n.set()
		time.Sleep(time.Minute)
		var got []string
		for _, e := range n.takeEvents() {
			got = append(got, describeEvent(e))
		}
		assert.Equal(t, []string{
			"Created proxy uid-a-proxy-0 0", "Started proxy uid-a-proxy-0 0",
			"Created main uid-a-main-0 0", "Started main uid-a-main-0 0",
			"Created main uid-a-main-1 1", "Started main uid-a-main-1 1",
			"BackOff main uid-a-main-1 1 exit 3",
			"Created main uid-a-main-2 2", "Started main uid-a-main-2 2",
			"BackOff main uid-a-main-2 2 exit 3",
			"Killing proxy uid-a-proxy-0 0", "FailedPreStopHook proxy uid-a-proxy-0 0",
		}, got)
	})
}

// The output of a hook handler, which may contain a password, is in the log of the node with the exit code, but not in events.
func TestEventsOfFailedHooksOmitOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script {
			return critest.Script{Exec: func(context.Context, []string) (cri.ExecResult, error) {
				return cri.ExecResult{Stdout: []byte("hunter2"), Stderr: []byte(strings.Repeat("hunter2", 1000)), ExitCode: 7}, nil
			}}
		}})
		var log bytes.Buffer
		n := startAgent(t, rt, rt, lifecycle.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		pod := podtest.Pod("a")
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: podtest.Exec("echo", "$PASSWORD"), PreStop: podtest.Exec("echo", "$PASSWORD")}
		n.set(pod)
		time.Sleep(time.Second)
		n.stop()
		texts := map[string]string{}
		for _, e := range n.takeEvents() {
			assert.NotContains(t, e.Message, "hunter2", e.Reason)
			assert.NotContains(t, e.LogValue().String(), "hunter2", e.Reason)
			texts[e.Reason] = e.Message
		}
		assert.Equal(t, hook.MessageFailedPostStartHook, texts["FailedPostStartHook"])
		assert.Equal(t, hook.MessageFailedPreStopHook, texts["FailedPreStopHook"])
		assert.Equal(t, hook.MessageKillingPostStart, texts["Killing"])

		assert.True(t, slices.ContainsFunc(n.history, func(line string) bool { return strings.HasSuffix(line, " PostStartHookError") }), n.history)
		lines := strings.Split(log.String(), "\n")
		i := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, `msg="run preStop hook"`) })
		require.GreaterOrEqual(t, i, 0, "%s", lines)
		assert.Contains(t, lines[i], "level=WARN")
		assert.Contains(t, lines[i], "exitCode=7")
		assert.Less(t, len(lines[i]), 8*hook.MaxOutput)
	})
}

// The fallback of a hook to HTTP without TLS is reported by an event.
func TestHookFallbackToHTTPRecordsEvent(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)

	rt := critest.New(critest.Options{})
	n := startAgent(t, rt, rt, lifecycle.Options{})
	pod := podtest.Pod("a")
	pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{
		Scheme: corev1.URISchemeHTTPS, Host: host, Port: intstr.Parse(port), Path: "/warm?token=hunter2",
	}}}
	n.set(pod)
	var events []podevents.Event
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline) && len(events) < 3; time.Sleep(10 * time.Millisecond) {
		events = append(events, n.takeEvents()...)
	}
	require.Len(t, events, 3)
	e := events[2]
	assert.Equal(t, "LifecycleHTTPFallback main uid-a-main-0 0", describeEvent(e))
	assert.Equal(t, corev1.EventTypeWarning, e.Type)
	assert.Equal(t, "request to HTTPS lifecycle hook "+net.JoinHostPort(host, port)+" got HTTP response, retry with HTTP succeeded", e.Message)
}

// The log omits empty fields of an event.
func TestEventLogValueOmitsEmptyFields(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	logger.Info("event", "event", podevents.Event{Reason: "Killing", Message: "bye"})
	logger.Info("event", "event", podevents.Event{
		Reason: "BackOff", Message: "later", Container: "main", ContainerID: "c1", Attempt: 2, ExitCode: new(int32(137)),
	})
	assert.Equal(t, "level=INFO msg=event event.reason=Killing event.message=bye\n"+
		"level=INFO msg=event event.reason=BackOff event.message=later event.container=main event.attempt=2 "+
		"event.containerID=c1 event.exitCode=137\n", log.String())
}
