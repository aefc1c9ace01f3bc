// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed81659283/nodeagent/device"
)

// The largest number and length of resource names that get a series of their own. Any process that can open the registration socket may send
// names; those beyond the limits are counted as otherResources.
const (
	maxResourceNames  = 1024
	maxResourceLength = 317 // of a DNS subdomain, a slash and a name
	otherResources    = "other"
)

type deviceMetrics struct {
	group      *group
	allocate   *histogram
	requests   *counter
	errors     *counter
	took       *histogram
	aligned    *counter
	notAligned *counter

	plugins       *group
	registrations *counter

	podResources *podResourcesMetrics

	mu    sync.Mutex // guards names
	names map[string]bool
}

type podResourcesMetrics struct {
	group            *group
	total            *counter
	requests, errors map[string]*counter // by method
}

func (m *Metrics) buildDevices(g *group) {
	d := &m.devices
	d.group, d.names = g, map[string]bool{}
	d.allocate = g.addHistogram("kubelet_device_plugin_alloc_duration_seconds", "Durations of Allocate calls of device plugins.", prometheus.DefBuckets, "resource_name")
	d.requests = g.addCounter("kubelet_topology_manager_admission_requests_total", "Reservations of devices and CPUs for pods.")
	d.errors = g.addCounter("kubelet_topology_manager_admission_errors_total", "Pods that a topology policy has refused, or whose devices or CPUs could not be reserved under it.")
	d.took = g.addHistogram("kubelet_topology_manager_admission_duration_ms", "Durations of reservations, in milliseconds.", prometheus.ExponentialBuckets(.05, 2, 15))
	d.aligned = g.addCounter("kubelet_container_aligned_compute_resources_count", "Containers or pods whose resources are within the boundary.", "scope", "boundary")
	d.notAligned = g.addCounter("kubelet_container_aligned_compute_resources_failure_count", "Containers or pods that were refused because their resources are not within the boundary.", "scope", "boundary")
}

func (m *Metrics) buildDevicePlugins(g *group) {
	m.devices.plugins = g
	m.devices.registrations = g.addCounter("kubelet_device_plugin_registration_total", "Registrations of device plugins.", "resource_name")
}

func (m *Metrics) buildPodResources(g *group) {
	const version = "server_api_version"
	p := &podResourcesMetrics{group: g, requests: map[string]*counter{}, errors: map[string]*counter{}}
	p.total = g.addCounter("kubelet_pod_resources_endpoint_requests_total", "Calls of the podresources API.", version)
	for method, name := range map[string]string{"List": "list", "Get": "get", "GetAllocatableResources": "get_allocatable"} {
		p.requests[method] = g.addCounter("kubelet_pod_resources_endpoint_requests_"+name, "Calls of "+method+".", version)
		p.errors[method] = g.addCounter("kubelet_pod_resources_endpoint_errors_"+name, "Failed calls of "+method+".", version)
	}
	m.devices.podResources = p
}

// Devices returns hooks for package device, which record metrics and then call the additional hooks. All pods that device/placement reserves are counted, and
// without that package only pods with devices.
func (m *Metrics) Devices(additional ...device.Hooks) device.Hooks {
	d := &m.devices
	d.group.enabled.Store(true)
	return device.Hooks{
		CapacityChanged: func() {
			for _, h := range additional {
				if h.CapacityChanged != nil {
					h.CapacityChanged()
				}
			}
		},
		PodsChanged: func(uids []string) {
			callHooks(additional, func(h device.Hooks) { callHook(h.PodsChanged, uids) })
		},
		AllocateCalled: func(resource string, took time.Duration, err error) {
			d.allocate.observe(took, d.boundName(resource))
			callHooks(additional, func(h device.Hooks) { callHook3(h.AllocateCalled, resource, took, err) })
		},
		Reserved: func(r device.Reservation) {
			d.recordReservation(r)
			callHooks(additional, func(h device.Hooks) { callHook(h.Reserved, r) })
		},
		Error: func(err error) { callHooks(additional, func(h device.Hooks) { callHook(h.Error, err) }) },
	}
}

func (d *deviceMetrics) recordReservation(r device.Reservation) {
	d.requests.inc()
	d.took.observeValue(float64(r.Took) / float64(time.Millisecond))
	refusal, refused := errors.AsType[*device.Refusal](r.Err)
	if refused && r.Policy != device.None { // as the kubelet, whose policy none admits
		d.errors.inc()
	}
	scope := scopeContainer
	if r.PodScope {
		scope = scopePod
	}
	switch {
	case r.Policy != device.SingleNUMANode: // no other policy guarantees one node
	case r.Err == nil:
		d.aligned.add(float64(r.Aligned), scope, boundaryNode)
	case refused && refusal.Reason == device.ReasonTopologyAffinityError:
		d.notAligned.inc(scope, boundaryNode)
	}
}

// DevicePlugins returns a function for the hook RegistrationRequested of package device/plugin, which counts registrations.
func (m *Metrics) DevicePlugins() func(resource string) {
	d := &m.devices
	d.plugins.enabled.Store(true)
	return func(resource string) { d.registrations.inc(d.boundName(resource)) }
}

// PodResources returns functions for the hooks RequestReceived and RequestFailed of package device/podresources. They record metrics of the
// podresources API.
func (m *Metrics) PodResources() (received, failed func(version, method string)) {
	p := m.devices.podResources
	p.group.enabled.Store(true)
	received = func(version, method string) {
		p.total.inc(version)
		if version == "v1" { // the kubelet counts v1alpha1 in the total only
			p.requests[method].inc(version) // nil for an unknown method; inc of nil does nothing
		}
	}
	return received, func(version, method string) { p.errors[method].inc(version) }
}

// boundName returns the label value for a resource: its name, or otherResources if the name is too long or there are too many.
func (d *deviceMetrics) boundName(resource string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.names[resource] && (len(d.names) >= maxResourceNames || len(resource) > maxResourceLength) {
		return otherResources
	}
	d.names[resource] = true
	return resource
}
