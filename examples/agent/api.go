// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/nodeapi"
	"github.com/seed81659283/nodeagent/nodeapi/auth"
	"github.com/seed81659283/nodeagent/nodeapi/nodelogs"
	"github.com/seed81659283/nodeagent/nodeapi/stream"
	"github.com/seed81659283/nodeagent/nodestatus"
)

// serverConfig is the part of the config that is for the agent's own API, with the names and the defaults of the kubelet's.
type serverConfig struct {
	EnableServer       *bool      `json:"enableServer"` // not set: where the machine is a node of a cluster
	Address            netip.Addr `json:"address"`      // not set: 0.0.0.0
	Port               int32      `json:"port"`         // zero: 10250
	ReadOnlyPort       int32      `json:"readOnlyPort"` // zero: none
	HealthzPort        int32      `json:"healthzPort"`  // on the loopback; zero: none, for several agents on a machine
	TLSCertFile        string     `json:"tlsCertFile"`  // empty: one that nobody has signed, in stateDir
	TLSPrivateKeyFile  string     `json:"tlsPrivateKeyFile"`
	ServerTLSBootstrap bool       `json:"serverTLSBootstrap"` // get the certificate from the cluster, where somebody has to approve it

	Authentication authenticationConfig `json:"authentication"`
	Authorization  authorizationConfig  `json:"authorization"`

	EnableDebuggingHandlers *bool           `json:"enableDebuggingHandlers"` // not set: true
	EnableProfilingHandler  *bool           `json:"enableProfilingHandler"`  // not set: true
	EnableDebugFlagsHandler *bool           `json:"enableDebugFlagsHandler"` // not set: true
	EnableSystemLogHandler  *bool           `json:"enableSystemLogHandler"`  // of /var/log; not set: true
	EnableSystemLogQuery    bool            `json:"enableSystemLogQuery"`    // and of the journal
	StreamIdleTimeout       metav1.Duration `json:"streamingConnectionIdleTimeout"`
}

// authenticationConfig says who may be known.
type authenticationConfig struct {
	X509 struct {
		ClientCAFile string `json:"clientCAFile"`
	} `json:"x509"`
	Webhook struct {
		Enabled  *bool           `json:"enabled"` // not set: where the machine is a node of a cluster
		CacheTTL metav1.Duration `json:"cacheTTL"`
	} `json:"webhook"`
	Anonymous struct {
		Enabled bool `json:"enabled"`
	} `json:"anonymous"`
}

// authorizationConfig says who may do what.
type authorizationConfig struct {
	Mode    string `json:"mode"` // Webhook or AlwaysAllow; empty: Webhook
	Webhook struct {
		CacheAuthorizedTTL   metav1.Duration `json:"cacheAuthorizedTTL"`
		CacheUnauthorizedTTL metav1.Duration `json:"cacheUnauthorizedTTL"`
	} `json:"webhook"`
}

const (
	kubeletPort = 10250
	webhook     = "Webhook"
	alwaysAllow = "AlwaysAllow"
)

func unless(set *bool, otherwise bool) bool {
	if set == nil {
		return otherwise
	}
	return *set
}

// serves reports whether the agent has an API of its own.
func (c *config) serves() bool { return unless(c.EnableServer, c.joins()) }

// publicPort is the one that the API server calls; zero: none.
func (c *config) publicPort() int32 {
	if !c.serves() {
		return 0
	}
	return cmp.Or(c.Port, kubeletPort)
}

// features are those that the Node object declares.
func (c *config) features() []string {
	features := nodestatus.DeclaredFeatures()
	if c.serves() {
		features = append(features, "ExtendWebSocketsToKubelet") // the API server hands WebSockets through
	}
	return features
}

// checkServer refuses what is invalid.
func (c *config) checkServer() error {
	for name, port := range map[string]int32{"port": c.Port, "readOnlyPort": c.ReadOnlyPort, "healthzPort": c.HealthzPort} {
		if port < 0 || port > 65535 {
			return fmt.Errorf("%s: %d is not between 0 and 65535", name, port)
		}
	}
	mode := cmp.Or(c.Authorization.Mode, webhook)
	switch {
	case c.ServerTLSBootstrap && !c.joins():
		return errors.New("serverTLSBootstrap needs kubeconfig: the certificate is for the addresses of its Node")
	case !c.serves():
		return nil
	case mode != webhook && mode != alwaysAllow:
		return fmt.Errorf("authorization.mode: %q is neither %s nor %s", mode, webhook, alwaysAllow)
	case mode == webhook && !c.joins():
		return fmt.Errorf("authorization.mode %s needs kubeconfig: the API server decides", webhook)
	case unless(c.Authentication.Webhook.Enabled, false) && !c.joins():
		return errors.New("authentication.webhook.enabled needs kubeconfig: the API server knows whose a token is")
	case (c.TLSCertFile == "") != (c.TLSPrivateKeyFile == ""):
		return errors.New("tlsCertFile and tlsPrivateKeyFile: one of them is not set")
	case c.ServerTLSBootstrap && c.TLSCertFile != "":
		return errors.New("serverTLSBootstrap and tlsCertFile are both set")
	}
	return nil
}

// serve makes the agent's own API.
func (a *agent) serve(ctx context.Context) error {
	if !a.serves() {
		return nil
	}
	access, err := a.access()
	if err != nil {
		return err
	}
	streams, err := a.streams()
	if err != nil {
		return err
	}
	metrics, err := a.pages(ctx)
	if err != nil {
		return err
	}
	o := nodeapi.Options{
		Access: access, Metrics: metrics, Hooks: a.meter.requests(), Pods: nodeapi.PodsOf(a.apiPods), Runtime: a.runtime, Streams: streams,
		Settings: a.settings, Flags: map[string]string{"args": strings.Join(os.Args[1:], " ")}, Version: nodestatus.Version,
		Profiling: unless(a.EnableProfilingHandler, true), NoDebugging: !unless(a.EnableDebuggingHandlers, true), Logger: a.log,
	}
	if a.collector != nil {
		o.Summary = a.recent
	}
	if unless(a.EnableDebugFlagsHandler, true) {
		o.Level = a.level
	}
	if unless(a.EnableSystemLogHandler, true) {
		if o.NodeLogs, err = nodelogs.New(nodelogs.Options{Query: a.EnableSystemLogQuery, Logger: a.log}); err != nil {
			return err
		}
	}
	if c, ok := a.runtime.(cri.Checkpointer); ok {
		o.Checkpointer, o.CheckpointDir = c, a.state("checkpoints")
	}
	server, err := nodeapi.New(o)
	if err != nil {
		return err
	}
	a.parts = append(a.parts, func(ctx context.Context) error { return a.listen(ctx, server) }, func(ctx context.Context) error {
		<-ctx.Done()
		streams.Close()
		return nil
	})
	return nil
}

// listen serves on the ports of the config until ctx ends.
func (a *agent) listen(ctx context.Context, server *nodeapi.Server) error {
	encryption, err := a.encryption()
	if err != nil {
		return err
	}
	host := "0.0.0.0"
	if a.Address.IsValid() {
		host = a.Address.String()
	}
	endpoints := []nodeapi.Endpoint{{Handler: server.Handler(), TLS: encryption}}
	addresses := []string{net.JoinHostPort(host, strconv.Itoa(int(a.publicPort())))}
	if a.ReadOnlyPort != 0 {
		endpoints = append(endpoints, nodeapi.Endpoint{Handler: server.ReadOnly()})
		addresses = append(addresses, net.JoinHostPort(host, strconv.Itoa(int(a.ReadOnlyPort))))
	}
	if a.HealthzPort != 0 {
		endpoints = append(endpoints, nodeapi.Endpoint{Handler: server.Healthz()})
		addresses = append(addresses, net.JoinHostPort("127.0.0.1", strconv.Itoa(int(a.HealthzPort))))
	}
	for i, address := range addresses {
		if endpoints[i].Listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", address); err != nil {
			for _, e := range endpoints[:i] {
				err = errors.Join(err, e.Listener.Close())
			}
			return fmt.Errorf("serve the API of the node: %w", err)
		}
	}
	a.log.Info("serve the API of the node", "addresses", addresses)
	return server.Run(ctx, endpoints...)
}

// access makes what decides who may do what.
func (a *agent) access() (*auth.Access, error) {
	w := a.Authorization.Webhook
	o := auth.Options{
		NodeName: a.NodeName, Anonymous: a.Authentication.Anonymous.Enabled, AlwaysAllow: a.Authorization.Mode == alwaysAllow,
		TokenTTL: a.Authentication.Webhook.CacheTTL.Duration, AllowTTL: w.CacheAuthorizedTTL.Duration, DenyTTL: w.CacheUnauthorizedTTL.Duration,
		Logger: a.log,
	}
	if path := a.Authentication.X509.ClientCAFile; path != "" {
		ca, err := auth.NewCAFile(path, func(err error) { a.log.Error("authentication.x509.clientCAFile", "error", err) })
		if err != nil {
			return nil, fmt.Errorf("authentication.x509.clientCAFile: %w", err)
		}
		a.clientCAs, o.ClientCAs = ca, ca.Pool
	}
	if a.cluster != nil {
		if unless(a.Authentication.Webhook.Enabled, true) {
			o.Tokens = a.cluster.source.TokenReviews()
		}
		if !o.AlwaysAllow {
			o.Access = a.cluster.source.AccessReviews()
		}
	}
	return auth.New(o)
}

// streams makes what serves interactive sessions. They end with their container.
func (a *agent) streams() (*stream.Server, error) {
	o := stream.Options{PodOf: a.podOf, Idle: a.StreamIdleTimeout.Duration, Logger: a.log, Hooks: a.meter.sessions()}
	if a.client != nil {
		o.Streamer = a.client
	} else {
		o.Runner, _ = a.runtime.(cri.SessionRunner)
	}
	streams, err := stream.New(o)
	if err != nil {
		return nil, err
	}
	a.generator.Notify(func(uids ...string) {
		for _, s := range streams.Streams() {
			if slices.Contains(uids, s.Target.PodUID) && !a.up(s.Target) {
				streams.End(s.Target.ID, "the container or the pod has ended")
			}
		}
	})
	return streams, nil
}

// up reports whether the container or sandbox of a session still is.
func (a *agent) up(target stream.Target) bool {
	pod, err := a.generator.Get(target.PodUID)
	return err != nil || // that is not known
		slices.ContainsFunc(pod.Containers, func(c cri.Container) bool { return c.ID == target.ID && c.State == cri.ContainerRunning }) ||
		slices.ContainsFunc(pod.Sandboxes, func(s cri.Sandbox) bool { return s.ID == target.ID && s.State == cri.SandboxReady })
}

// podOf returns the UID of the pod that a container or a sandbox is of, or nothing.
func (a *agent) podOf(id string) string {
	pods, _ := a.generator.Pods() // those that are known will do
	for _, pod := range pods {
		if slices.ContainsFunc(pod.Containers, func(c cri.Container) bool { return c.ID == id }) ||
			slices.ContainsFunc(pod.Sandboxes, func(s cri.Sandbox) bool { return s.ID == id }) {
			return pod.UID
		}
	}
	return ""
}

// apiPods are the pods of the node as the agent has found them.
func (a *agent) apiPods(yield func(*corev1.Pod, *corev1.PodStatus) bool) {
	for _, state := range a.Pods() {
		if !yield(state.Spec, state.Status) {
			return
		}
	}
}

// settings are those of the agent that a kubelet has, too, with its names.
func (a *agent) settings() any {
	return map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"enableServer": true, "address": a.Address, "port": a.publicPort(), "readOnlyPort": a.ReadOnlyPort, "healthzPort": a.HealthzPort,
		"tlsCertFile": a.TLSCertFile, "tlsPrivateKeyFile": a.TLSPrivateKeyFile, "serverTLSBootstrap": a.ServerTLSBootstrap,
		"rotateCertificates": a.RotateCertificates, "authentication": a.Authentication, "authorization": a.Authorization,
		"staticPodPath": a.Manifests, "staticPodURL": a.ManifestURL, "containerRuntimeEndpoint": a.Runtime, "podLogsDir": a.LogDir,
		"clusterDNS": a.ClusterDNS, "clusterDomain": a.ClusterDomain, "allowedUnsafeSysctls": a.AllowedSysctls, "cgroupRoot": a.CgroupRoot,
		"maxPods": cmp.Or(a.MaxPods, nodestatus.DefaultMaxPods), "podsPerCore": a.PodsPerCore, "providerID": a.ProviderID,
		"systemReserved": a.SystemReserved, "kubeReserved": a.KubeReserved, "registerWithTaints": a.RegisterWithTaints,
		"evictionHard": a.EvictionHard, "evictionSoft": a.EvictionSoft, "evictionSoftGracePeriod": a.EvictionSoftGracePeriod,
		"evictionMinimumReclaim": a.EvictionMinimumReclaim, "evictionMaxPodGracePeriod": a.EvictionMaxGraceSeconds,
		"evictionPressureTransitionPeriod": a.EvictionTransition, "containerLogMaxSize": a.LogMaxSize, "containerLogMaxFiles": a.LogMaxFiles,
		"shutdownGracePeriod": a.ShutdownGracePeriod, "shutdownGracePeriodCriticalPods": a.ShutdownGracePeriodCritical,
		"streamingConnectionIdleTimeout": cmp.Or(a.StreamIdleTimeout, metav1.Duration{Duration: 4 * time.Hour}),
		"enableDebuggingHandlers":        unless(a.EnableDebuggingHandlers, true), "enableProfilingHandler": unless(a.EnableProfilingHandler, true),
		"enableDebugFlagsHandler": unless(a.EnableDebugFlagsHandler, true), "enableSystemLogHandler": unless(a.EnableSystemLogHandler, true),
		"enableSystemLogQuery": a.EnableSystemLogQuery,
	}
}
