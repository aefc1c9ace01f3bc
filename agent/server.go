// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/streaming"
	"github.com/seed81659283/nodeagent/nodeapi"
	"github.com/seed81659283/nodeagent/nodeapi/auth"
	"github.com/seed81659283/nodeagent/nodestatus"
)

// serve makes the API of the node.
func (a *Agent) serve(ctx context.Context) error {
	if !a.config.serves() {
		return nil
	}
	k := &a.config.Kubelet
	access, err := a.access()
	if err != nil {
		return err
	}
	streams, err := a.streams()
	if err != nil {
		return err
	}
	metrics, err := a.metricPages(ctx)
	if err != nil {
		return err
	}
	o := nodeapi.Options{
		Access: access, Metrics: metrics, Hooks: a.meter.requests(), Pods: nodeapi.PodsOf(a.allPods), Runtime: a.runtime, Streams: streams,
		Settings: func() any { return k }, Flags: map[string]string{"args": strings.Join(os.Args[1:], " ")}, Version: nodestatus.Version,
		Profiling: *k.EnableProfilingHandler, NoDebugging: !*k.EnableDebuggingHandlers, Logger: a.log,
	}
	if a.collector != nil {
		o.Summary = a.recent
	}
	if *k.EnableDebugFlagsHandler {
		o.Level = a.level
	}
	if *k.EnableSystemLogHandler {
		if o.NodeLogs, err = nodeapi.NewNodeLogs(nodeapi.NodeLogsOptions{Query: *k.EnableSystemLogQuery, Logger: a.log}); err != nil {
			return err
		}
	}
	if c, ok := a.runtime.(cri.Checkpointer); ok {
		o.Checkpointer, o.CheckpointDir = c, a.config.path("checkpoints")
	}
	if a.server, err = nodeapi.New(o); err != nil {
		return err
	}
	a.add("API of the node", a.listen)
	a.add("streams", func(ctx context.Context) error {
		<-ctx.Done()
		streams.Close()
		return nil
	})
	return nil
}

// listen serves on the ports of the configuration until ctx ends.
func (a *Agent) listen(ctx context.Context) error {
	encryption, err := a.encryption()
	if err != nil {
		return err
	}
	k := &a.config.Kubelet
	address := func(host string, port int32) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }
	endpoints := []nodeapi.Endpoint{{Handler: a.server.Handler(), TLS: encryption}}
	addresses := []string{address(k.Address, k.Port)}
	if k.ReadOnlyPort != 0 {
		endpoints = append(endpoints, nodeapi.Endpoint{Handler: a.server.ReadOnly()})
		addresses = append(addresses, address(k.Address, k.ReadOnlyPort))
	}
	if *k.HealthzPort != 0 {
		endpoints = append(endpoints, nodeapi.Endpoint{Handler: a.server.Healthz()})
		addresses = append(addresses, address("127.0.0.1", *k.HealthzPort))
	}
	for i := range addresses {
		if endpoints[i].Listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", addresses[i]); err != nil {
			for _, e := range endpoints[:i] {
				err = errors.Join(err, e.Listener.Close())
			}
			return fmt.Errorf("serve the API of the node: %w", err)
		}
	}
	a.log.Info("serve the API of the node", "addresses", addresses)
	return a.server.Run(ctx, endpoints...)
}

// access returns the decisions on which client may do what.
func (a *Agent) access() (*auth.Access, error) {
	k := &a.config.Kubelet
	o := auth.Options{
		NodeName: a.config.Node.NodeName, Anonymous: *k.Authentication.Anonymous.Enabled, AlwaysAllow: k.Authorization.Mode == kubeletconfig.AlwaysAllow,
		TokenTTL: k.Authentication.Webhook.CacheTTL.Duration, AllowTTL: k.Authorization.Webhook.CacheAuthorizedTTL.Duration,
		DenyTTL: k.Authorization.Webhook.CacheUnauthorizedTTL.Duration, Logger: a.log,
	}
	if path := k.Authentication.X509.ClientCAFile; path != "" {
		ca, err := auth.NewCAFile(path, func(err error) { a.log.Error("authentication.x509.clientCAFile", "error", err) })
		if err != nil {
			return nil, fmt.Errorf("authentication.x509.clientCAFile: %w", err)
		}
		a.clientCAs, o.ClientCAs = ca, ca.Pool
	}
	if a.cluster != nil {
		if *k.Authentication.Webhook.Enabled {
			o.Tokens = a.cluster.source.TokenReviews()
		}
		if !o.AlwaysAllow {
			o.Access = a.cluster.source.AccessReviews()
		}
	}
	return auth.New(o)
}

// streams makes the server of interactive sessions. A session ends with its container.
func (a *Agent) streams() (*streaming.Server, error) {
	o := streaming.Options{Pods: a.generator, Idle: a.config.Kubelet.StreamingConnectionIdleTimeout.Duration, Logger: a.log, Hooks: a.meter.sessions()}
	if o.Streamer, _ = a.runtime.(cri.Streamer); o.Streamer == nil {
		o.Runner, _ = a.runtime.(cri.SessionRunner)
	}
	return streaming.New(o)
}

// allPods yields the pods of the node with their statuses.
func (a *Agent) allPods(yield func(*corev1.Pod, *corev1.PodStatus) bool) {
	for _, state := range a.pods.Pods() {
		if !yield(state.Spec, state.Status) {
			return
		}
	}
}
