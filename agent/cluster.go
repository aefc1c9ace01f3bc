// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/apiserver/cert"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/nodestatus/heartbeat"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

// readMachine reads the CPU count and the memory of the machine, and computes from them the allocatable resources of the first Node status.
func (a *Agent) readMachine(ctx context.Context, _ *lifecycle.Options) error {
	a.options.Machine = cmp.Or[nodestatus.Capacity](a.options.Machine, machine.Host{Root: a.config.Node.RootDir})
	m, err := a.options.Machine.Machine(ctx)
	if err != nil {
		return err
	}
	c := a.config.NodeStatus()
	if a.config.InCluster() {
		if err := errors.Join(c.Validate(), c.ValidateReserved(m)); err != nil {
			return err
		}
	}
	initial, _ := nodestatus.Initial(nodestatus.Facts{Config: c, Machine: m})
	a.node.Initial, a.machine = initial.Status.Allocatable, m
	return nil
}

// createClusterParts creates the parts that read pods, Secrets and ConfigMaps from the API server and report statuses. It sends no request, unless
// clientConfig has to.
func (a *Agent) createClusterParts(ctx context.Context, _ *lifecycle.Options) (err error) {
	if !a.config.InCluster() {
		return nil
	}
	config, err := a.clientConfig(ctx)
	if err != nil {
		return err
	}
	a.cluster, err = apiserver.NewParts(config, apiserver.PartsOptions{
		EventQPS: a.config.Kubelet.EventRate().PerSecond, EventBurst: a.config.Kubelet.EventRate().Burst,
		NodeName: a.config.Node.NodeName, Pods: &a.pods, Node: a.node.Node, WaitForNode: a.node.WaitRegistered,
		StaticSources: slices.DeleteFunc(sourceNames(&a.config, &a.options), func(name string) bool { return name == apiserver.API }),
		ServicesFile:  a.filePath("services"), CacheDir: a.filePath("objects"), CacheObjects: a.config.Node.KeepObjects,
		StatusSent: a.metrics.StatusSent(), Logger: a.log, Rand: a.options.Rand,
	})
	if err != nil {
		return err
	}
	a.parts.Add("objects of the API server", a.cluster.Objects.Run)
	a.parts.Add("event recorder", a.cluster.Recorder.Run)
	a.parts.Add("statuses", a.cluster.Statuses.Run)
	a.parts.Add("mirror pods", a.cluster.Mirrors.Run)
	if err := a.createNodeReporters(config); err != nil {
		return err
	}
	return a.requestServingCertificate(config, func() []corev1.NodeAddress { return a.node.Node().Status.Addresses })
}

// clientConfig returns the configuration for clients of the API server, without connecting. Only a bootstrap without rotation sends requests: it
// waits for the certificate.
func (a *Agent) clientConfig(ctx context.Context) (*rest.Config, error) {
	n := &a.config.Node
	if a.options.API != nil {
		return a.options.API, nil
	}
	rate := a.config.Kubelet.APIRate()
	o := cert.ClientOptions{
		NodeName: n.NodeName, Kubeconfig: n.Kubeconfig, BootstrapKubeconfig: n.BootstrapKubeconfig, Dir: n.CertDir, QPS: rate.PerSecond, Burst: rate.Burst, Logger: a.log,
	}
	if !a.config.Kubelet.RotateCertificates {
		return cert.Load(ctx, o)
	}
	o.Hooks.Rotated, o.Hooks.Failed = a.metrics.ClientCertificate()
	client, err := cert.NewClient(o) // client.Run requests the certificate
	if err != nil {
		return nil, err
	}
	a.parts.Add("client certificate", client.Run)
	return client.Config(), nil
}

// openTokens returns a client that requests service account tokens, for a node that has a kubeconfig but no Node object.
func (a *Agent) openTokens(ctx context.Context) (apiserver.Tokens, error) {
	config, err := a.clientConfig(ctx)
	if err != nil {
		return apiserver.Tokens{}, err
	}
	source, err := apiserver.New(config, apiserver.Options{NodeName: a.config.Node.NodeName})
	if err != nil {
		return apiserver.Tokens{}, fmt.Errorf("kubeconfig %s: %w", a.config.Node.Kubeconfig, err)
	}
	return source.Tokens(), nil
}

// createNodeReporters creates the parts that register the node, report its status and renew its Lease.
func (a *Agent) createNodeReporters(config *rest.Config) error {
	k := &a.config.Kubelet
	o := heartbeat.ReporterOptions{
		Config: a.config.NodeStatus(), Capacity: a.options.Machine, Conditions: nodestatus.ConditionsFunc(a.nodeHealth),
		Devices:         nodestatus.DeviceCapacityFunc(a.deviceCapacity),
		Hosts:           cmp.Or[heartbeat.Hosts](a.options.Hosts, nodestatus.Lookup{}),
		UpdateFrequency: k.NodeStatusUpdateFrequency.Duration, ReportFrequency: k.NodeStatusReportFrequency.Duration,
		Reregister: a.config.Node.Reregister, NoRegister: !*k.RegisterNode, Logger: a.log, Rand: a.options.Rand,
		Event: func(e nodestatus.Event) { a.cluster.Recorder.NodeEvent(e.Type, e.Reason, e.Message) },
		Hooks: heartbeat.JoinHooks(
			heartbeat.ReporterHooks{Registered: a.nodeTimes.Registered, Reported: a.nodeTimes.Reported},
			heartbeat.ReporterHooks{Registered: func(*corev1.Node) { a.cluster.Mirrors.Changed() }},
			a.options.Hooks.Node,
		),
	}
	o.Images, _ = a.runtime.(nodestatus.Images)
	o.Runtime, _ = a.runtime.(nodestatus.Runtime)
	if a.client != nil {
		o.Volumes = nodestatus.VolumesFunc(func() ([]corev1.UniqueVolumeName, bool) { return a.volumes.VolumesInUse() })
	}
	if setter, ok := a.runtime.(cri.PodCIDRSetter); ok {
		o.PodCIDRs = heartbeat.SetPodCIDRs(setter)
	}
	reporter, err := heartbeat.NewReporter(config, o)
	if err != nil {
		return err
	}
	lease, err := heartbeat.NewLease(config, heartbeat.LeaseOptions{
		Reporter: reporter, Duration: time.Duration(k.NodeLeaseDurationSeconds) * time.Second, Logger: a.log, Rand: a.options.Rand,
	})
	if err != nil {
		return err
	}
	a.node.Set(reporter)
	a.parts.Add("node status", reporter.Run)
	a.parts.Add("node lease", lease.Run)
	a.nodeTimes.Registering()
	o.Event(nodestatus.StartingEvent())
	return nil
}

// nodeHealth returns the errors and resource pressures from which the conditions of the Node are computed.
func (a *Agent) nodeHealth() (h nodestatus.Health) {
	if err := a.generator.Healthy(); err != nil {
		h.Unhealthy = append(h.Unhealthy, fmt.Errorf("PLEG is not healthy: %w", err))
	}
	h.ShuttingDown = a.inhibitor != nil && a.inhibitor.ShuttingDown()
	if a.evictor != nil {
		pressure := a.evictor.Status().Conditions
		h.MemoryPressure = slices.Contains(pressure, eviction.MemoryPressure)
		h.DiskPressure = slices.Contains(pressure, eviction.DiskPressure)
		h.PIDPressure = slices.Contains(pressure, eviction.PIDPressure)
	}
	return h
}

// hostIPs returns the configured nodeIPs. If none are configured, it returns the internal addresses of the Node object.
func (a *Agent) hostIPs() []netip.Addr {
	if configured := a.config.Node.NodeIPs; len(configured) > 0 {
		return configured
	}
	return nodestatus.InternalIPs(a.node.Node())
}
