// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nodes

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/controlplane"
)

// parseObserved returns the object of a watch event.
func parseObserved(t *testing.T, text string) *observed {
	var o observed
	require.NoError(t, json.Unmarshal([]byte(text), &o))
	return &o
}

// The time of a start lasts from the first event of a pod with a node to the first with phase Running. Later events do not move them.
func TestWatcherMeasuresFromBindingToRunning(t *testing.T) {
	w, at := newWatcher(), time.Unix(0, 0)
	for _, text := range []string{
		`{"metadata":{"name":"p"},"status":{"phase":"Pending"}}`,
		`{"metadata":{"name":"p"},"spec":{"nodeName":"n"},"status":{"phase":"Pending"}}`,
		`{"metadata":{"name":"p"},"spec":{"nodeName":"n"},"status":{"phase":"Pending"}}`,
		`{"metadata":{"name":"p"},"spec":{"nodeName":"n"},"status":{"phase":"Running"}}`,
		`{"metadata":{"name":"p"},"spec":{"nodeName":"n"},"status":{"phase":"Running"}}`,
	} {
		at = at.Add(time.Second)
		w.recordPod("MODIFIED", parseObserved(t, text), at)
	}
	require.Equal(t, []float64{2}, w.startTimes())
}

// scriptedWatches are the results of watch requests, in order. After the last, requests fail.
type scriptedWatches struct {
	paths   []string
	results []watchResult
}

// watchResult is the events and then the error of a watch.
type watchResult struct {
	events []controlplane.Event
	err    error
}

func (s *scriptedWatches) Watch(_ context.Context, path string, handle func(controlplane.Event) error) error {
	s.paths = append(s.paths, path)
	if len(s.paths) > len(s.results) {
		return io.EOF
	}
	for _, e := range s.results[len(s.paths)-1].events {
		if err := handle(e); err != nil {
			return err
		}
	}
	return s.results[len(s.paths)-1].err
}

// A watch that the API server closes is resumed from its last version, also without an event in between. After the loss of the version it starts
// from the beginning. The error of a server that is gone is returned.
func TestWatcherResumesClosedWatch(t *testing.T) {
	event := func(kind, object string) controlplane.Event {
		return controlplane.Event{Type: kind, Object: []byte(object)}
	}
	running := `{"metadata":{"name":"p","resourceVersion":"7"},"spec":{"nodeName":"n"},"status":{"phase":"Running"}}`
	client := &scriptedWatches{results: []watchResult{
		{[]controlplane.Event{event("ADDED", `{"metadata":{"name":"p","resourceVersion":"5"}}`), event("BOOKMARK", `{"metadata":{"resourceVersion":"6"}}`)}, io.EOF},
		{nil, io.EOF},
		{[]controlplane.Event{event("ERROR", `{"code":410}`)}, nil},
		{[]controlplane.Event{event("ADDED", running)}, io.ErrUnexpectedEOF},
	}}
	w := newWatcher()
	synctest.Test(t, func(t *testing.T) {
		require.ErrorIs(t, w.watchPods(t.Context(), client), io.EOF)
	})
	require.Len(t, w.running, 1)
	var versions []string
	for _, path := range client.paths[:5] {
		_, version, _ := strings.Cut(path, "resourceVersion=")
		versions = append(versions, version)
	}
	require.Equal(t, []string{"", "6", "6", "", "7"}, versions)
}

// A node that is not Ready for a moment, or is deleted, lowers the number of nodes that were kept Ready.
func TestWatcherKeepsLowestNumberOfReadyNodes(t *testing.T) {
	w := newWatcher()
	event := func(kind, name, status string) {
		w.recordNode(kind, parseObserved(t, `{"metadata":{"name":"`+name+`"},"status":{"conditions":[{"type":"Ready","status":"`+status+`"}]}}`), time.Time{})
	}
	event("ADDED", "a", "True")
	event("ADDED", "b", "True")
	event("ADDED", "c", "False")
	require.Equal(t, 2, w.countReady())
	w.resetLowest()
	event("MODIFIED", "c", "True")
	require.Equal(t, 2, w.lowestReady())
	event("MODIFIED", "a", "Unknown")
	event("DELETED", "b", "True")
	event("MODIFIED", "a", "True")
	require.Equal(t, 1, w.lowestReady())
}

// Counters of all label sets are added. A page without them is no page of an API server.
func TestParseServerAddsCounters(t *testing.T) {
	s, err := parseServer([]byte(strings.Join([]string{
		"# TYPE apiserver_request_total counter",
		`apiserver_request_total{code="200",resource="pods",verb="GET"} 5`,
		`apiserver_request_total{code="201",resource="a b",verb="POST"} 1e+02`,
		`apiserver_request_total_other{code="200"} 7`,
		"process_cpu_seconds_total 12.5",
	}, "\n")))
	require.NoError(t, err)
	require.Equal(t, server{requests: 105, cpu: 12.5}, s)

	_, err = parseServer([]byte("process_cpu_seconds_total 12.5\n"))
	require.ErrorContains(t, err, "has only")
	_, err = parseServer([]byte("process_cpu_seconds_total much\n"))
	require.ErrorContains(t, err, "process_cpu_seconds_total")
}

// The table of each number of nodes has the medians of both simulators and their ratio.
func TestPrintTables(t *testing.T) {
	var out strings.Builder
	printTables(&out, []int{10}, []figures{
		{Subject: "virtualnode", Nodes: 10, Values: map[metric]float64{readySeconds: 1}},
		{Subject: "virtualnode", Nodes: 10, Values: map[metric]float64{readySeconds: 3}},
		{Subject: "kwok", Nodes: 10, Values: map[metric]float64{readySeconds: 4}},
		{Subject: "kwok", Nodes: 20, Values: map[metric]float64{readySeconds: 100}},
	})
	var row []string
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, string(readySeconds)) {
			row = strings.Fields(line)
		}
	}
	require.Equal(t, []string{"2.000", "4.000", "0.500"}, row[len(row)-3:])
}
