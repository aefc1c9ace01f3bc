// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"crypto/x509"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

type nodeMetrics struct {
	group                                                            *group
	name                                                             *gauge
	preAgent, preRegistration, registration, postRegistration, total *gauge
	shutdownStart, shutdownEnd                                       *gauge
	reports                                                          *counter

	server   certMetrics
	client   certMetrics
	provider *gauge
}

// certMetrics has the metrics of one certificate of the node: the serving or the client certificate.
type certMetrics struct {
	group   *group
	errors  *counter
	age     *histogram
	mu      sync.Mutex // guards current
	current func() *x509.Certificate
}

func (m *Metrics) buildNode(group *group) {
	n := &m.node
	n.group = group
	n.name = group.addGauge("kubelet_node_name", "The name of the node. The value is always 1.", "node")
	n.preAgent = group.addGauge("kubelet_node_startup_pre_kubelet_duration_seconds", "Time from the boot of the machine to the start of the agent.")
	n.preRegistration = group.addGauge("kubelet_node_startup_pre_registration_duration_seconds", "Time from the start of the agent to the first attempt to register the node.")
	n.registration = group.addGauge("kubelet_node_startup_registration_duration_seconds", "Time from the first attempt until the node is registered.")
	n.postRegistration = group.addGauge("kubelet_node_startup_post_registration_duration_seconds", "Time from the registration until the node is ready.")
	n.total = group.addGauge("kubelet_node_startup_duration_seconds", "Time from the boot of the machine until the node is ready.")
	n.shutdownStart = group.addGauge("kubelet_graceful_shutdown_start_time_seconds", "When the last graceful node shutdown started, in seconds since the epoch.")
	n.shutdownEnd = group.addGauge("kubelet_graceful_shutdown_end_time_seconds", "When all pods were terminated for the last shutdown, in seconds since the epoch; 0 before.")
	n.reports = group.addCounter("nodeagent_node_status_reports_total", "Node statuses that the API server has accepted.")
	n.provider = group.addGauge("kubelet_metrics_provider", "The source of container metrics. The value is always 1.", "provider")
}

// NodeOptions describes the node and the start of its agent.
type NodeOptions struct {
	Name    string    // of the node; may be empty
	Boot    time.Time // start of the machine; zero: unknown
	Started time.Time // start of the agent; zero: unknown
	// Provider is the value of kubelet_metrics_provider, the source of container metrics: "cadvisor" for cgroups, as in the
	// kubelet, or "cri" for the runtime. Empty: cadvisor.
	Provider string
}

// NodeHooks record metrics about the registration of the Node object. Registered and Reported are for the fields of these names
// in heartbeat.ReporterHooks. The caller calls Registering itself.
type NodeHooks struct {
	Registering func() // called before the first attempt
	Registered  func(*corev1.Node)
	Reported    func(*corev1.Node)
}

// Node returns hooks that record how long the node takes to start, until it is ready. They record nothing if the Node object
// was created before the agent started.
func (m *Metrics) Node(opts NodeOptions) NodeHooks {
	n := &m.node
	n.group.enabled.Store(true)
	n.name.set(1, opts.Name)
	if opts.Provider == "" {
		opts.Provider = "cadvisor"
	}
	n.provider.set(1, opts.Provider)
	s := &nodeStartup{node: n, opts: opts}
	return NodeHooks{Registering: s.startRegistration, Registered: s.recordRegistered, Reported: s.recordReport}
}

// nodeStartup has the times at which the node was registered and became ready. The kubelet_node_startup_* metrics are computed
// from them.
type nodeStartup struct {
	node *nodeMetrics
	opts NodeOptions

	mu                                 sync.Mutex // guards the fields below
	attemptedAt, registeredAt, readyAt time.Time  // first attempt, registration and first Ready status
}

func (s *nodeStartup) startRegistration() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attemptedAt.IsZero() {
		s.attemptedAt = time.Now()
	}
}

func (s *nodeStartup) recordRegistered(node *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.registeredAt.IsZero() || s.attemptedAt.IsZero() {
		return
	}
	s.registeredAt = time.Now()
	if node.CreationTimestamp.Time.Before(s.opts.Started.Truncate(time.Second)) {
		s.readyAt = s.registeredAt // the Node object existed before
		return
	}
	s.node.preAgent.set(s.opts.Started.Sub(s.opts.Boot).Seconds())
	s.node.preRegistration.set(s.attemptedAt.Sub(s.opts.Started).Seconds())
	s.node.registration.set(s.registeredAt.Sub(s.attemptedAt).Seconds())
}

func (s *nodeStartup) recordReport(node *corev1.Node) {
	s.node.reports.inc()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.registeredAt.IsZero() || !s.readyAt.IsZero() {
		return
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			s.readyAt = time.Now()
			s.node.postRegistration.set(s.readyAt.Sub(s.registeredAt).Seconds())
			s.node.total.set(s.readyAt.Sub(s.opts.Boot).Seconds())
		}
	}
}

// Shutdown returns functions for the hooks ShutdownStarted and ShutdownCompleted of package shutdown. They record when a
// node shutdown started and completed.
func (m *Metrics) Shutdown() (started, completed func(at time.Time)) {
	n := &m.node
	n.group.enabled.Store(true)
	started = func(at time.Time) {
		n.shutdownStart.setTime(at)
		n.shutdownEnd.set(0)
	}
	return started, func(at time.Time) { n.shutdownEnd.setTime(at) }
}

func (m *Metrics) buildServerCert(group *group) {
	c := &m.node.server
	c.group = group
	c.errors = group.addCounter("kubelet_server_expiration_renew_errors", "Attempts to renew the serving certificate that failed.")
	c.age = group.addHistogram("kubelet_certificate_manager_server_rotation_seconds", "How old serving certificates were when they were replaced.",
		[]float64{60, 3600, 14400, 86400, 604800, 2592000, 7776000, 15552000, 31104000, 124416000})
	if ttl := m.newComputedGauge("kubelet_certificate_manager_server_ttl_seconds", "Time until the serving certificate expires; infinite without one."); ttl != nil {
		group.collectors = append(group.collectors, &certTTL{c, ttl})
	}
}

func (m *Metrics) buildClientCert(group *group) {
	m.node.client.group = group
	m.node.client.errors = group.addCounter("kubelet_certificate_manager_client_expiration_renew_errors",
		"Attempts to renew the client certificate that failed.")
}

// ServingCertificate returns functions for the hooks Rotated and Failed of package apiserver/cert. They record metrics of
// the serving certificate. The current certificate is the result of current(), which may be nil.
func (m *Metrics) ServingCertificate(current func() *x509.Certificate) (rotated func(old, current *x509.Certificate), failed func(error)) {
	c := &m.node.server
	c.mu.Lock()
	c.current = current
	c.mu.Unlock()
	c.group.enabled.Store(true)
	return c.recordRotation, c.countError
}

// ClientCertificate returns functions for the hooks Rotated and Failed of package apiserver/cert. They record metrics of the
// client certificate.
func (m *Metrics) ClientCertificate() (rotated func(old, current *x509.Certificate), failed func(error)) {
	c := &m.node.client
	c.group.enabled.Store(true)
	return c.recordRotation, c.countError
}

func (c *certMetrics) recordRotation(old, _ *x509.Certificate) {
	if old != nil {
		c.age.observe(time.Since(old.NotBefore))
	}
}

func (c *certMetrics) countError(error) { c.errors.inc() }

// certTTL is a collector that reports the time until a certificate expires.
type certTTL struct {
	cert *certMetrics
	ttl  *computedGauge
}

// Describe implements prometheus.Collector.
func (c *certTTL) Describe(descs chan<- *prometheus.Desc) { descs <- c.ttl.desc }

// Collect implements prometheus.Collector.
func (c *certTTL) Collect(metrics chan<- prometheus.Metric) {
	c.cert.mu.Lock()
	current := c.cert.current
	c.cert.mu.Unlock()
	left := math.Inf(1)
	if current != nil {
		if leaf := current(); leaf != nil {
			left = math.Trunc(time.Until(leaf.NotAfter).Seconds())
		}
	}
	t := gaugeValues{}
	t.addValue(c.ttl, left)
	t.sendMetrics(metrics)
}
