// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/eviction/threshold"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/nodestatus/heartbeat"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

// nodeConfig is the part of the config that is for the Node object, with the names of the kubelet's.
type nodeConfig struct {
	RegisterNode       *bool               `json:"registerNode"` // false: the API server of kubeconfig is only asked for tokens
	NodeLabels         map[string]string   `json:"nodeLabels"`
	RegisterWithTaints []corev1.Taint      `json:"registerWithTaints"`
	ProviderID         string              `json:"providerID"`
	MaxPods            int                 `json:"maxPods"` // zero: 110
	PodsPerCore        int                 `json:"podsPerCore"`
	SystemReserved     corev1.ResourceList `json:"systemReserved"`
	KubeReserved       corev1.ResourceList `json:"kubeReserved"`
	Reregister         bool                `json:"reregister"` // comes back when somebody has deleted the Node

	NodeStatusUpdateFrequency metav1.Duration `json:"nodeStatusUpdateFrequency"` // zero: 10s
	NodeStatusReportFrequency metav1.Duration `json:"nodeStatusReportFrequency"` // of a status that has not changed; zero: 5m, or the other one
	NodeLeaseDurationSeconds  int32           `json:"nodeLeaseDurationSeconds"`  // zero: 40
}

// joins reports whether the machine is a node of a cluster.
func (c *config) joins() bool {
	return c.Kubeconfig != "" && (c.RegisterNode == nil || *c.RegisterNode)
}

// node returns what the operator has decided about the Node object.
func (c *config) node() (nodestatus.Config, error) {
	reserved, err := c.reserved()
	return nodestatus.Config{
		Name: c.NodeName, NodeIPs: c.HostIPs, Labels: c.NodeLabels, Taints: c.RegisterWithTaints, ProviderID: c.ProviderID,
		MaxPods: c.MaxPods, PodsPerCore: c.PodsPerCore, Reserved: reserved,
		Port: c.publicPort(), DeclaredFeatures: c.features(),
	}, err
}

// reserved returns what of the node is not for pods.
func (c *config) reserved() (podtree.Reserved, error) {
	r := podtree.Reserved{System: c.SystemReserved, Kube: c.KubeReserved}
	for signal, kept := range map[eviction.Signal]*threshold.Value{
		eviction.MemoryAvailable: &r.MemoryAvailable, eviction.NodeFSAvailable: &r.NodeFSAvailable,
	} {
		text := c.EvictionHard[string(signal)]
		if text == "" || threshold.Disabled(text) {
			continue
		}
		var err error
		if *kept, err = threshold.ParseValue(text); err != nil {
			return r, fmt.Errorf("evictionHard[%q]: %w", signal, err)
		}
	}
	return r, nil
}

// measure reads what the machine is, and how large the file system of pods is.
func (a *agent) measure(context.Context) (machine.Info, error) {
	m, err := machine.Read(os.DirFS("/"))
	size, failed := diskSize(a.StateDir)
	m.RootFS = size
	return m, errors.Join(err, failed)
}

// sizeNode computes the allocatable resources of the machine as it is at the start.
func (a *agent) sizeNode(ctx context.Context) error {
	c, err := a.node()
	if err != nil {
		return err
	}
	m, err := a.measure(ctx)
	if err != nil {
		return err
	}
	node, _ := nodestatus.Initial(nodestatus.Facts{Config: c, Machine: m})
	a.atStart = node.Status.Allocatable
	return nil
}

// allocatable returns the allocatable resources of the Node object, as its status was last computed. Without a Node, or before its
// first status, it returns those of the start, like getNodeAnyWay of the kubelet.
func (a *agent) allocatable() corev1.ResourceList {
	if a.cluster != nil {
		list := a.cluster.reporter.Node().Status.Allocatable
		if _, measured := list[corev1.ResourceCPU]; measured {
			return list
		}
	}
	return a.atStart
}

// report makes what registers the node and reports how it is.
func (c *cluster) report(config *rest.Config) (err error) {
	a := c.agent
	now, err := a.node()
	if err != nil {
		return err
	}
	m, err := a.measure(context.Background())
	if err != nil {
		return err
	}
	if err := errors.Join(now.Validate(), now.ValidateReserved(m)); err != nil {
		return err
	}
	event := func(e nodestatus.Event) { c.recorder.NodeEvent(e.Type, e.Reason, e.Message) }
	o := heartbeat.ReporterOptions{
		Config: now, Capacity: nodestatus.CapacityFunc(a.measure), Conditions: nodestatus.ConditionsFunc(a.health), Hosts: nodestatus.Lookup{},
		UpdateFrequency: a.NodeStatusUpdateFrequency.Duration, ReportFrequency: a.NodeStatusReportFrequency.Duration,
		Reregister: a.Reregister, Event: event, Logger: a.log,
		Hooks: heartbeat.ReporterHooks{Registered: func(node *corev1.Node) {
			a.meter.node.Registered(node)
			c.mirrors.Changed()
		}, Reported: a.meter.node.Reported},
	}
	if a.client != nil {
		o.Images, o.Runtime, o.Volumes = a.client, a.client, nodestatus.VolumesFunc(a.volumesInUse)
		o.PodCIDRs = a.setPodCIDRs
	}
	if c.reporter, err = heartbeat.NewReporter(config, o); err != nil {
		return err
	}
	c.lease, err = heartbeat.NewLease(config, heartbeat.LeaseOptions{
		Reporter: c.reporter, Duration: time.Duration(a.NodeLeaseDurationSeconds) * time.Second, Logger: a.log,
	})
	a.meter.node.Registering()
	event(nodestatus.Starting())
	return err
}

// setPodCIDRs tells the runtime which addresses the pods of the node get, for one that configures the network by them.
func (a *agent) setPodCIDRs(ctx context.Context, texts []string) error {
	var all []netip.Prefix
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("podCIDRs of the Node: %w", err)
		}
		all = append(all, prefix)
	}
	return a.client.SetPodCIDRs(ctx, all)
}

// health is what the conditions of the Node are made from.
func (a *agent) health() (h nodestatus.Health) {
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

// volumesInUse are those that nobody may detach from the node.
func (a *agent) volumesInUse() (names []corev1.UniqueVolumeName, known bool) {
	if a.volumes == nil { // yet
		return nil, false
	}
	for _, name := range a.volumes.InUse() {
		names = append(names, corev1.UniqueVolumeName(name))
	}
	return names, true
}

// hostIPs are the addresses of the node: those of the config, or else those that its Node object has.
func (a *agent) hostIPs() []netip.Addr {
	if len(a.HostIPs) > 0 || a.cluster == nil {
		return a.HostIPs
	}
	var ips []netip.Addr
	for _, address := range a.cluster.reporter.Node().Status.Addresses {
		if ip, err := netip.ParseAddr(address.Address); err == nil && address.Type == corev1.NodeInternalIP {
			ips = append(ips, ip)
		}
	}
	return ips
}
