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
	shutdownBegan, shutdownEnded                                     *gauge
	reports                                                          *counter

	server   certMetrics
	client   certMetrics
	provider *gauge
}

// certMetrics are those of one of the certificates of a node. They are on the page when it rotates.
type certMetrics struct {
	group   *group
	errors  *counter
	age     *histogram
	mu      sync.Mutex // guards current
	current func() *x509.Certificate
}

func (m *Metrics) buildNode(g *group) {
	n := &m.node
	n.group = g
	n.name = g.gauge("kubelet_node_name", "The name of the node. The value is always 1.", "node")
	n.preAgent = g.gauge("kubelet_node_startup_pre_kubelet_duration_seconds", "Time from the boot of the machine to the start of the agent.")
	n.preRegistration = g.gauge("kubelet_node_startup_pre_registration_duration_seconds", "Time from then to the first attempt to register the node.")
	n.registration = g.gauge("kubelet_node_startup_registration_duration_seconds", "Time from then until the node is registered.")
	n.postRegistration = g.gauge("kubelet_node_startup_post_registration_duration_seconds", "Time from then until the node is ready.")
	n.total = g.gauge("kubelet_node_startup_duration_seconds", "All of that.")
	n.shutdownBegan = g.gauge("kubelet_graceful_shutdown_start_time_seconds", "When the last shutdown began, in seconds since the epoch.")
	n.shutdownEnded = g.gauge("kubelet_graceful_shutdown_end_time_seconds", "When all pods were stopped for it.")
	n.reports = g.counter("nodeagent_node_status_reports_total", "Statuses of the node that the API server has taken.")
	n.provider = g.gauge("kubelet_metrics_provider", "What measures containers. The value is always 1.", "provider")
}

// NodeOptions is what is known of a node when its agent starts.
type NodeOptions struct {
	Name    string    // of the node; it may be empty
	Boot    time.Time // of the machine; zero: not known
	Started time.Time // of the agent; zero: not known
	// Provider says what measures containers: cadvisor for their cgroups, as the kubelet's page has it, or cri for the runtime.
	// Empty: cadvisor.
	Provider string
}

// NodeHooks are for whoever registers a node: the fields Registered and Reported of heartbeat.ReporterHooks take them.
type NodeHooks struct {
	Registering func() // the first attempt is about to be made
	Registered  func(*corev1.Node)
	Reported    func(*corev1.Node)
}

// Node returns hooks that count how long it takes until a node is ready. Those of a node that was registered before say nothing
// of that: the API server has known it.
func (m *Metrics) Node(o NodeOptions) NodeHooks {
	n := &m.node
	n.group.wired.Store(true)
	n.name.set(1, o.Name)
	if o.Provider == "" {
		o.Provider = "cadvisor"
	}
	n.provider.set(1, o.Provider)
	s := &startup{node: n, opts: o}
	return NodeHooks{Registering: s.registering, Registered: s.registered, Reported: s.reported}
}

// startup is how far the start of a node is.
type startup struct {
	node *nodeMetrics
	opts NodeOptions

	mu             sync.Mutex // guards all below
	asked, has, ok time.Time  // when it was registered first: the attempt, the answer, and readiness
}

func (s *startup) registering() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked.IsZero() {
		s.asked = time.Now()
	}
}

func (s *startup) registered(node *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.has.IsZero() || s.asked.IsZero() {
		return
	}
	s.has = time.Now()
	if node.CreationTimestamp.Time.Before(s.opts.Started.Truncate(time.Second)) {
		s.ok = s.has // it was there before
		return
	}
	s.node.preAgent.set(s.opts.Started.Sub(s.opts.Boot).Seconds())
	s.node.preRegistration.set(s.asked.Sub(s.opts.Started).Seconds())
	s.node.registration.set(s.has.Sub(s.asked).Seconds())
}

func (s *startup) reported(node *corev1.Node) {
	s.node.reports.inc()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.has.IsZero() || !s.ok.IsZero() {
		return
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			s.ok = time.Now()
			s.node.postRegistration.set(s.ok.Sub(s.has).Seconds())
			s.node.total.set(s.ok.Sub(s.opts.Boot).Seconds())
		}
	}
}

// Shutdown returns the fields Begun and Ended of the hooks of shutdown.
func (m *Metrics) Shutdown() (begun, ended func(at time.Time)) {
	n := &m.node
	n.group.wired.Store(true)
	begun = func(at time.Time) {
		n.shutdownBegan.setTime(at)
		n.shutdownEnded.set(0)
	}
	return begun, func(at time.Time) { n.shutdownEnded.setTime(at) }
}

func (m *Metrics) buildServerCert(g *group) {
	c := &m.node.server
	c.group = g
	c.errors = g.counter("kubelet_server_expiration_renew_errors", "Attempts to get another serving certificate that failed.")
	c.age = g.histogram("kubelet_certificate_manager_server_rotation_seconds", "How old serving certificates were when they were replaced.",
		[]float64{60, 3600, 14400, 86400, 604800, 2592000, 7776000, 15552000, 31104000, 124416000})
	if ttl := m.level("kubelet_certificate_manager_server_ttl_seconds", "Time until the serving certificate expires; infinite without one."); ttl != nil {
		g.members = append(g.members, &certTTL{c, ttl})
	}
}

func (m *Metrics) buildClientCert(g *group) {
	m.node.client.group = g
	m.node.client.errors = g.counter("kubelet_certificate_manager_client_expiration_renew_errors",
		"Attempts to get another client certificate that failed.")
}

// ServingCertificate returns the fields Rotated and Failed of the hooks of apiserver/cert, for the serving certificate. Current
// returns the one in use, or nil.
func (m *Metrics) ServingCertificate(current func() *x509.Certificate) (rotated func(old, current *x509.Certificate), failed func(error)) {
	c := &m.node.server
	c.mu.Lock()
	c.current = current
	c.mu.Unlock()
	c.group.wired.Store(true)
	return c.rotated, c.failed
}

// ClientCertificate returns the same for the client certificate.
func (m *Metrics) ClientCertificate() (rotated func(old, current *x509.Certificate), failed func(error)) {
	c := &m.node.client
	c.group.wired.Store(true)
	return c.rotated, c.failed
}

func (c *certMetrics) rotated(old, _ *x509.Certificate) {
	if old != nil {
		c.age.observe(time.Since(old.NotBefore))
	}
}

func (c *certMetrics) failed(error) { c.errors.inc() }

// certTTL is the time until a certificate expires.
type certTTL struct {
	of  *certMetrics
	ttl *level
}

// Describe is a part of prometheus.Collector.
func (c *certTTL) Describe(descs chan<- *prometheus.Desc) { descs <- c.ttl.desc }

// Collect is a part of prometheus.Collector.
func (c *certTTL) Collect(metrics chan<- prometheus.Metric) {
	c.of.mu.Lock()
	current := c.of.current
	c.of.mu.Unlock()
	left := math.Inf(1)
	if current != nil {
		if leaf := current(); leaf != nil {
			left = math.Trunc(time.Until(leaf.NotAfter).Seconds())
		}
	}
	t := tally{}
	t.add(c.ttl, left)
	t.send(metrics)
}
