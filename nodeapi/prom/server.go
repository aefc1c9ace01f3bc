// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type serverMetrics struct {
	group    *group
	requests *counter
	took     *histogram
	inFlight *gauge
	sockets  *counter
	closed   *counter
}

func (m *Metrics) buildServer(group *group) {
	names := []string{"method", "path", "server_type", "long_running"}
	m.server = serverMetrics{
		group:    group,
		requests: group.addCounter("kubelet_http_requests_total", "Requests to the API of the node.", names...),
		took:     group.addHistogram("kubelet_http_requests_duration_seconds", "How long requests took.", prometheus.DefBuckets, names...),
		inFlight: group.addGauge("kubelet_http_inflight_requests", "Requests in progress.", names...),
		sockets:  group.addCounter("kubelet_websocket_streaming_requests_total", "Sessions over WebSocket.", "subresource"),
		closed:   group.addCounter("nodeagent_http_connections_refused_total", "Connections that were closed because of a limit."),
	}
}

// Request has the label values of a request to the node API (the kubelet's HTTP API). The fields are those of nodeapi.Request.
type Request struct {
	Method      string // HTTP method, or "other"
	Path        string // first element of the path, for metrics the first two; or "other"
	ServerType  string // "readwrite" or "readonly"
	LongRunning bool
}

func (r Request) labelValues() []string {
	return []string{r.Method, r.Path, r.ServerType, strconv.FormatBool(r.LongRunning)}
}

// ServerHooks record metrics about requests to the node API. The caller calls them from the hooks of package nodeapi.
type ServerHooks struct {
	RequestStarted     func(Request)                // a request has arrived
	RequestFinished    func(Request, time.Duration) // the response to a request is complete
	ConnectionsRefused func(connections int)        // this number of connections was closed because of a limit
	WebSocketStarted   func(subresource string)     // a WebSocket session has started: exec, attach or portforward
}

// Server returns the hooks for the metrics of the node API.
func (m *Metrics) Server() ServerHooks {
	s := &m.server
	s.group.enabled.Store(true)
	return ServerHooks{
		RequestStarted: func(r Request) {
			s.requests.inc(r.labelValues()...)
			s.inFlight.add(1, r.labelValues()...)
		},
		RequestFinished: func(r Request, took time.Duration) {
			s.inFlight.add(-1, r.labelValues()...)
			s.took.observe(took, r.labelValues()...)
		},
		ConnectionsRefused: func(connections int) { s.closed.add(float64(connections)) },
		WebSocketStarted:   func(subresource string) { s.sockets.inc(subresource) },
	}
}

type podsAPIMetrics struct {
	group   *group
	total   *counter
	methods map[string]*counter
	dropped *counter
}

func (m *Metrics) buildPodsAPI(group *group) {
	names := []string{"server_api_version", "status_code"}
	m.podsAPI = podsAPIMetrics{
		group: group,
		total: group.addCounter("kubelet_pod_requests_total", "Calls of the pods API.", names...),
		methods: map[string]*counter{
			"ListPods":  group.addCounter("kubelet_pod_requests_list_total", "Calls of ListPods.", names...),
			"GetPod":    group.addCounter("kubelet_pod_requests_get_total", "Calls of GetPod.", names...),
			"WatchPods": group.addCounter("kubelet_pod_requests_watch_total", "Calls of WatchPods.", names...),
		},
		dropped: group.addCounter("kubelet_pod_watch_events_dropped_total", "Watchers of the pods API that were closed because they were too slow."),
	}
}

// PodsAPI returns functions for the hooks CallCompleted and WatcherDropped of package nodeapi/podsapi. They record metrics
// of the gRPC pods API.
func (m *Metrics) PodsAPI() (completed func(method, code string), dropped func()) {
	p := &m.podsAPI
	p.group.enabled.Store(true)
	completed = func(method, code string) {
		p.total.inc("v1alpha1", code)
		p.methods[method].inc("v1alpha1", code) // nil for an unknown method; inc of nil does nothing
	}
	return completed, func() { p.dropped.inc() }
}
