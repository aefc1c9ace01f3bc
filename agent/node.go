// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/nodestatus/heartbeat"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

// node is the Node object, for the parts that its Reporter needs itself. Until the Reporter is made the Node object is empty.
type node struct {
	Reporter *heartbeat.Reporter
	initial  corev1.ResourceList // allocatable resources of the machine at the start
	memory   int64               // bytes of the machine at the start
}

func (n *node) Node() *corev1.Node {
	if n.Reporter == nil {
		return &corev1.Node{}
	}
	return n.Reporter.Node()
}

// Allocatable returns the allocatable resources of the Node object, as its status was last computed. Without a Node, or before its first
// status, it returns those of the machine at the start, like getNodeAnyWay of the kubelet.
func (n *node) Allocatable() corev1.ResourceList {
	list := n.Node().Status.Allocatable
	if _, measured := list[corev1.ResourceCPU]; measured {
		return list
	}
	return n.initial
}

// nodeConfig returns what the operator has decided about the Node object.
func (a *Agent) nodeConfig() nodestatus.Config {
	k, n := &a.config.Kubelet, &a.config.Node
	reserved, _ := k.Reserved() // validated
	c := nodestatus.Config{
		Name: n.NodeName, NodeIPs: n.NodeIPs, Labels: n.NodeLabels, Taints: k.RegisterWithTaints, ProviderID: k.ProviderID,
		MaxPods: int(k.MaxPods), PodsPerCore: int(k.PodsPerCore), Reserved: reserved, DeclaredFeatures: nodestatus.DeclaredFeatures(),
	}
	if a.config.serves() {
		c.Port = k.Port
		c.DeclaredFeatures = append(c.DeclaredFeatures, "ExtendWebSocketsToKubelet") // the API server hands WebSockets through
	}
	return c
}

// readMachine computes the allocatable resources of the machine as it is at the start.
func (a *Agent) readMachine(ctx context.Context) error {
	if a.options.Machine == nil {
		a.options.Machine = machine.Host{Root: a.config.Node.RootDir}
	}
	m, err := a.options.Machine.Machine(ctx)
	if err != nil {
		return err
	}
	c := a.nodeConfig()
	if a.config.joins() {
		if err := errors.Join(c.Validate(), c.ValidateReserved(m)); err != nil {
			return err
		}
	}
	initial, _ := nodestatus.Initial(nodestatus.Facts{Config: c, Machine: m})
	a.node.initial, a.node.memory = initial.Status.Allocatable, m.Memory
	return nil
}

// report makes the parts that register the node and report its status.
func (c *cluster) report(config *rest.Config) (err error) {
	a := c.agent
	k := &a.config.Kubelet
	event := func(e nodestatus.Event) { c.recorder.NodeEvent(e.Type, e.Reason, e.Message) }
	o := heartbeat.ReporterOptions{
		Config: a.nodeConfig(), Capacity: a.options.Machine, Conditions: nodestatus.ConditionsFunc(a.health), Hosts: a.options.Hosts,
		UpdateFrequency: k.NodeStatusUpdateFrequency.Duration, ReportFrequency: k.NodeStatusReportFrequency.Duration,
		Reregister: a.config.Node.Reregister, Event: event, Logger: a.log,
		Hooks: a.nodeHooks(),
	}
	if o.Hosts == nil {
		o.Hosts = nodestatus.Lookup{}
	}
	o.Images, _ = a.runtime.(nodestatus.Images)
	o.Runtime, _ = a.runtime.(nodestatus.Runtime)
	if a.client != nil {
		o.Volumes = nodestatus.VolumesFunc(a.volumesInUse)
	}
	if setter, ok := a.runtime.(cri.PodCIDRSetter); ok {
		o.PodCIDRs = func(ctx context.Context, texts []string) error { return setPodCIDRs(ctx, setter, texts) }
	}
	if a.node.Reporter, err = heartbeat.NewReporter(config, o); err != nil {
		return err
	}
	c.lease, err = heartbeat.NewLease(config, heartbeat.LeaseOptions{
		Reporter: a.node.Reporter, Duration: time.Duration(k.NodeLeaseDurationSeconds) * time.Second, Logger: a.log,
	})
	a.meter.node.Registering()
	event(nodestatus.Starting())
	return err
}

func (a *Agent) nodeHooks() heartbeat.ReporterHooks {
	hooks := a.options.Hooks.Node
	hooks.Registered = both(both(a.meter.node.Registered, func(*corev1.Node) { a.cluster.mirrors.Changed() }), hooks.Registered)
	hooks.Reported = both(a.meter.node.Reported, hooks.Reported)
	return hooks
}

// both returns a hook that calls two. The second may be nil.
func both[T any](first, second func(T)) func(T) {
	if second == nil {
		return first
	}
	return func(v T) {
		first(v)
		second(v)
	}
}

// setPodCIDRs tells the runtime which addresses the pods of the node get, for a runtime that configures the network by them.
func setPodCIDRs(ctx context.Context, runtime cri.PodCIDRSetter, texts []string) error {
	var all []netip.Prefix
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("podCIDRs of the Node: %w", err)
		}
		all = append(all, prefix)
	}
	return runtime.SetPodCIDRs(ctx, all)
}

// health returns what the conditions of the Node are made from.
func (a *Agent) health() (h nodestatus.Health) {
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

// volumesInUse returns the volumes that no controller may detach from the node.
func (a *Agent) volumesInUse() (names []corev1.UniqueVolumeName, known bool) {
	if a.volumes == nil { // yet
		return nil, false
	}
	for _, name := range a.volumes.InUse() {
		names = append(names, corev1.UniqueVolumeName(name))
	}
	return names, true
}

// hostIPs returns the addresses of the node: those of nodeIPs, or those of the Node object.
func (a *Agent) hostIPs() []netip.Addr {
	if configured := a.config.Node.NodeIPs; len(configured) > 0 || a.cluster == nil {
		return configured
	}
	var ips []netip.Addr
	for _, address := range a.node.Node().Status.Addresses {
		if ip, err := netip.ParseAddr(address.Address); err == nil && address.Type == corev1.NodeInternalIP {
			ips = append(ips, ip)
		}
	}
	return ips
}
