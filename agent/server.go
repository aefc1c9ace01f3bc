// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/apiserver/cert"
	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/streaming"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/nodeapi"
	"github.com/seed81659283/nodeagent/nodeapi/auth"
	"github.com/seed81659283/nodeagent/nodeapi/prom"
	"github.com/seed81659283/nodeagent/nodeapi/prom/usage"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

// openMetrics creates the Prometheus metrics of the agent. Without the API of the node and Options.Registerer, no metrics are recorded.
func (a *Agent) openMetrics(context.Context, *lifecycle.Options) (err error) {
	a.kubelet, err = prom.NewKubelet(prom.KubeletOptions{
		Served: a.servesAPI(), Registerer: a.options.Registerer, Version: nodestatus.Version,
		Options: prom.Options{Pods: a.pods.Pods, MirrorPods: func() int { return a.cluster.MirrorCount() }},
	})
	if err != nil {
		return fmt.Errorf("Options.Registerer: %w", err)
	}
	a.metrics = a.kubelet.Metrics
	a.requests = a.metrics.Server()
	a.nodeTimes = a.metrics.Node(prom.NodeOptions{Name: a.config.Node.NodeName, Boot: machine.BootTime(os.DirFS("/")), Started: time.Now()})
	return nil
}

// createServer creates the HTTP API of the node, with pages for logs, metrics and statistics, and with exec and attach sessions.
func (a *Agent) createServer(ctx context.Context, _ *lifecycle.Options) error {
	if !a.servesAPI() {
		return nil
	}
	k := &a.config.Kubelet
	access, accessErr := a.createAccess()
	streams, streamsErr := a.createStreams()
	metrics, metricsErr := a.metricPages(ctx)
	err := errors.Join(accessErr, streamsErr, metricsErr)
	if err != nil {
		return err
	}
	o := nodeapi.Options{
		Access: access, Metrics: metrics, Pods: nodeapi.PodsWithStatus(a.pods.PodsAndStatuses), Runtime: a.runtime, Streams: streams,
		Settings: func() any { return k }, Flags: map[string]string{"args": strings.Join(os.Args[1:], " ")}, Version: nodestatus.Version,
		Profiling: *k.EnableProfilingHandler, NoDebugging: !*k.EnableDebuggingHandlers, Logger: a.log,
		Hooks: nodeapi.Hooks{
			RequestReceived:   func(r nodeapi.Request) { a.requests.RequestStarted(prom.Request(r)) },
			RequestCompleted:  func(r nodeapi.Request, took time.Duration) { a.requests.RequestFinished(prom.Request(r), took) },
			ConnectionsClosed: func(_ string, closed int) { a.requests.ConnectionsRefused(closed) },
		},
	}
	if a.collector != nil {
		o.Summary = a.cachedStats
	}
	if a.plugins != nil {
		o.HealthChecks = []nodeapi.HealthCheck{{Name: "device-plugin", Check: func(context.Context) error { return a.plugins.Check() }}}
	}
	if *k.EnableDebugFlagsHandler {
		o.LogLevel = a.level
	}
	if *k.EnableSystemLogHandler {
		if o.NodeLogs, err = nodeapi.NewNodeLogs(nodeapi.NodeLogsOptions{AllowQueries: *k.EnableSystemLogQuery, Logger: a.log}); err != nil {
			return err
		}
	}
	if c, ok := a.runtime.(cri.Checkpointer); ok {
		o.Checkpointer, o.CheckpointDir = c, a.filePath("checkpoints")
	}
	if a.server, err = nodeapi.New(o); err != nil {
		return err
	}
	a.parts.Add("API of the node", a.serveAPI)
	a.parts.Add("streams", func(ctx context.Context) error { <-ctx.Done(); streams.Close(); return nil })
	return nil
}

// addHealthz adds the server of healthzPort, which does not depend on enableServer.
func (a *Agent) addHealthz(context.Context, *lifecycle.Options) error {
	if address := a.config.Kubelet.HealthzAddress(); address != "" {
		a.parts.Add("healthz", func(ctx context.Context) error { return nodeapi.RunHealthz(ctx, address, a.log) })
	}
	return nil
}

// serveAPI serves the HTTP API on the configured addresses and ports until ctx ends.
func (a *Agent) serveAPI(ctx context.Context) error {
	encryption, err := a.tlsConfig()
	if err != nil {
		return err
	}
	addresses := a.config.Kubelet.APIAddresses()
	listeners, err := nodeapi.ListenAll(ctx, addresses...)
	if err != nil {
		return fmt.Errorf("serve the API of the node: %w", err)
	}
	endpoints := []nodeapi.Endpoint{{Handler: a.server.Handler(), TLS: encryption}, {Handler: a.server.ReadOnly()}}[:len(listeners)]
	for i, l := range listeners {
		endpoints[i].Listener = l
	}
	a.log.Info("serve the API of the node", "addresses", addresses)
	return a.server.Run(ctx, endpoints...)
}

// createAccess returns the authentication and authorization of clients of the node's API.
func (a *Agent) createAccess() (*auth.Access, error) {
	k, o := &a.config.Kubelet, a.config.AuthOptions()
	o.Logger = a.log
	if path := k.Authentication.X509.ClientCAFile; path != "" {
		ca, err := auth.NewCAFile(path, func(err error) { a.log.Error("authentication.x509.clientCAFile", "error", err) })
		if err != nil {
			return nil, fmt.Errorf("authentication.x509.clientCAFile: %w", err)
		}
		o.ClientCAs, a.tls.ClientCAs = ca.Pool, ca.Pool
	}
	if a.cluster != nil {
		if *k.Authentication.Webhook.Enabled {
			o.TokenReviewer = a.cluster.Source.TokenReviews()
		}
		if !o.AlwaysAllow {
			o.AccessReviewer = a.cluster.Source.AccessReviews()
		}
	}
	return auth.New(o)
}

// createStreams returns the server of exec, attach and port-forward sessions. The server closes a session when the container stops.
func (a *Agent) createStreams() (*streaming.Server, error) {
	o := streaming.Options{Pods: a.generator, IdleTimeout: a.config.Kubelet.StreamingConnectionIdleTimeout.Duration, Logger: a.log}
	o.Hooks.WebSocket = func(k streaming.Kind) { a.requests.WebSocketStarted(string(k)) }
	if o.Streamer, _ = a.runtime.(cri.Streamer); o.Streamer == nil {
		o.Runner, _ = a.runtime.(cri.SessionRunner)
	}
	return streaming.New(o)
}

// pagesMaxAge is the largest age of the values on a metrics page: several clients share one measurement. The kubelet measures every 10 to 15 s.
const pagesMaxAge = 10 * time.Second

// metricPages returns the HTTP handlers of the metric pages, which Prometheus scrapes.
func (a *Agent) metricPages(ctx context.Context) (pages nodeapi.Metrics, err error) {
	o := prom.PageOptions{Error: func(err error) { a.log.Warn("metrics", "error", err) }}
	pages.All, pages.Probes, pages.SLIs = a.kubelet.Pages(o)
	if a.collector == nil { // there are no cgroups to measure
		return pages, nil
	}
	root, err := cgroups.ParseCgroupfs(a.config.Kubelet.CgroupRoot)
	if err != nil {
		return pages, err
	}
	measured := usage.Options{MaxAge: pagesMaxAge, CgroupRoot: root, SystemdNames: a.cgroups.systemd, Error: func(page string, err error) {
		a.log.Warn("metrics", "page", page, "error", err)
	}}
	measured.Machine, _ = machine.Read(os.DirFS("/")) // a value that cannot be read is not on the page
	numbers, err := usage.NewPages(ctx, a.cachedStats, measured)
	if err != nil {
		return pages, err
	}
	pages.Resource, pages.CAdvisor = numbers.Resource, numbers.Cadvisor
	return pages, a.kubelet.Register(numbers.Storage)
}

// requestServingCertificate adds the part that requests the certificate of the node's HTTPS server from the API server.
func (a *Agent) requestServingCertificate(config *rest.Config, addresses func() []corev1.NodeAddress) (err error) {
	if !a.config.Kubelet.ServerTLSBootstrap {
		return nil
	}
	var serving *cert.Serving
	o := cert.ServingOptions{NodeName: a.config.Node.NodeName, Addresses: addresses, Dir: a.config.Node.CertDir, Logger: a.log}
	o.Hooks.Rotated, o.Hooks.Failed = a.metrics.ServingCertificate(func() *x509.Certificate { return serving.Leaf() })
	if serving, err = cert.NewServing(config, o); err != nil {
		return err
	}
	a.tls.GetCertificate = serving.GetCertificate
	a.parts.Add("serving certificate", serving.Run)
	return nil
}

// tlsConfig returns the TLS configuration of the node's API. Its certificate is issued by the cluster, read from files, or self-signed.
func (a *Agent) tlsConfig() (_ *tls.Config, err error) {
	o := a.tls
	if o.GetCertificate != nil {
		return nodeapi.TLSConfig(o)
	}
	certFile, keyFile := a.config.Kubelet.TLSCertFile, a.config.Kubelet.TLSPrivateKeyFile
	if certFile == "" {
		if certFile, keyFile, err = cert.SelfSigned(a.config.Node.CertDir, a.config.Node.NodeName, a.hostIPs()); err != nil {
			return nil, err
		}
	}
	files, err := nodeapi.NewServingFiles(certFile, keyFile, func(err error) { a.log.Error("tlsCertFile", "error", err) })
	if err != nil {
		return nil, fmt.Errorf("tlsCertFile: %w", err)
	}
	o.GetCertificate = files.GetCertificate
	return nodeapi.TLSConfig(o)
}
