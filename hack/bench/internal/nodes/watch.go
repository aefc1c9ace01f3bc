// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nodes

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/hack/bench/internal/wait"
	"github.com/seed81659283/nodeagent/internal/controlplane"
)

// watcher records states of nodes and pods when a watch of the API server reports them.
type watcher struct {
	mu      sync.Mutex           // guards the fields below
	ready   map[string]bool      // by node: whether its condition Ready is true
	lowest  int                  // lowest number of Ready nodes since resetLowest
	bound   map[string]time.Time // by pod: first event with a node name
	running map[string]time.Time // by pod: first event with phase Running
	failed  error                // of a watch
}

func newWatcher() *watcher {
	return &watcher{ready: map[string]bool{}, bound: map[string]time.Time{}, running: map[string]time.Time{}}
}

// observed is the part of a Node or a Pod that the watcher reads.
type observed struct {
	Metadata struct {
		Name            string `json:"name"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Spec struct {
		NodeName string `json:"nodeName"`
	} `json:"spec"`
	Status struct {
		Phase      string `json:"phase"`
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

// watchClient reads the events of a watch. [controlplane.Client] implements it.
type watchClient interface {
	Watch(ctx context.Context, path string, handle func(controlplane.Event) error) error
}

// watchNodes records whether nodes are Ready until ctx ends.
func (w *watcher) watchNodes(ctx context.Context, client watchClient) error {
	return w.watch(ctx, client, "/api/v1/nodes", w.recordNode)
}

// watchPods records when pods of the default namespace are bound and when they run, until ctx ends.
func (w *watcher) watchPods(ctx context.Context, client watchClient) error {
	return w.watch(ctx, client, "/api/v1/namespaces/default/pods", w.recordPod)
}

// Limits of failed watches.
const (
	maxWatchFailures = 20                     // in a row, without an event
	watchPause       = 100 * time.Millisecond // before the next request, times the number of failures
)

// errVersionLost is the error of a watch whose version the API server does not have any more.
var errVersionLost = errors.New("the version of the watch is lost")

// watch calls record for each event at path until ctx ends. If the API server closes the watch, which it does after some minutes or when it
// is busy, watch resumes from the last event. Without the version of that event, it receives all objects again.
func (w *watcher) watch(ctx context.Context, client watchClient, path string, record func(kind string, object *observed, at time.Time)) error {
	version, failures := "", 0
	for ctx.Err() == nil {
		err := client.Watch(ctx, path+"?allowWatchBookmarks=true&resourceVersion="+version, func(e controlplane.Event) error {
			at := time.Now()
			if e.Type == "ERROR" {
				return fmt.Errorf("watch %s: %w: %s", path, errVersionLost, e.Object)
			}
			var object observed
			if err := json.Unmarshal(e.Object, &object); err != nil {
				return err
			}
			version, failures = object.Metadata.ResourceVersion, 0
			if e.Type == "BOOKMARK" {
				return nil
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			record(e.Type, &object, at)
			return nil
		})
		if status, ok := errors.AsType[*controlplane.StatusError](err); errors.Is(err, errVersionLost) || ok && status.Code == http.StatusGone {
			version = ""
		}
		if failures++; failures > maxWatchFailures {
			return err
		}
		if wait.Sleep(ctx, time.Duration(failures)*watchPause) != nil {
			return nil // ctx has ended
		}
	}
	return nil
}

// recordNode records the condition Ready of a node. w is locked.
func (w *watcher) recordNode(kind string, node *observed, _ time.Time) {
	ready := false
	for _, c := range node.Status.Conditions {
		ready = ready || c.Type == "Ready" && c.Status == "True" && kind != "DELETED"
	}
	w.ready[node.Metadata.Name] = ready
	w.lowest = min(w.lowest, w.countReady())
}

// recordPod records the first event of a pod with a node, and the first with phase Running. w is locked.
func (w *watcher) recordPod(_ string, pod *observed, at time.Time) {
	name := pod.Metadata.Name
	if pod.Spec.NodeName != "" && w.bound[name].IsZero() {
		w.bound[name] = at
	}
	if pod.Status.Phase == "Running" && w.running[name].IsZero() {
		w.running[name] = at
	}
}

// countReady returns the number of Ready nodes. w is locked.
func (w *watcher) countReady() (n int) {
	for _, ready := range w.ready {
		if ready {
			n++
		}
	}
	return n
}

// resetLowest starts a new period for lowestReady.
func (w *watcher) resetLowest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lowest = w.countReady()
}

// lowestReady returns the lowest number of Ready nodes since resetLowest.
func (w *watcher) lowestReady() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lowest
}

// recordError records the error of a watch; nil is ignored.
func (w *watcher) recordError(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = errors.Join(w.failed, err)
}

// watchError returns the errors of the watches.
func (w *watcher) watchError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// server contains counters of the API server.
type server struct {
	requests float64 // answered
	cpu      float64 // seconds
}

// readServer reads the counters of the API server from its page of metrics.
func readServer(ctx context.Context, client *controlplane.Client) (s server, err error) {
	var page []byte
	if err := client.Do(ctx, http.MethodGet, "/metrics", nil, &page); err != nil {
		return s, fmt.Errorf("read metrics of the API server: %w", err)
	}
	return parseServer(page)
}

// parseServer sums the counters in a page of metrics. A page without one of them is an error.
func parseServer(page []byte) (s server, err error) {
	found := map[string]bool{}
	for lines := bufio.NewScanner(bytes.NewReader(page)); lines.Scan(); {
		name, value, ok := splitSample(lines.Text())
		sum := map[string]*float64{"apiserver_request_total": &s.requests, "process_cpu_seconds_total": &s.cpu}[name]
		if !ok || sum == nil {
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return s, fmt.Errorf("metric %s: %w", name, err)
		}
		*sum += number
		found[name] = true
	}
	if len(found) != 2 {
		return s, fmt.Errorf("the page of metrics has only %v", found)
	}
	return s, nil
}

// splitSample returns the name and the value of a sample; ok is false for other lines.
func splitSample(line string) (name, value string, ok bool) {
	if strings.HasPrefix(line, "#") {
		return "", "", false
	}
	series, value, ok := strings.Cut(line, " ")
	if at := strings.LastIndexByte(line, '}'); at >= 0 {
		series, value, ok = line[:at], strings.TrimSpace(line[at+1:]), true
	}
	name, _, _ = strings.Cut(series, "{")
	return name, value, ok
}
