// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device_test

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/devicetest"
)

// seats is a resource of one node with a number of seats on each NUMA node. Containers take one seat each.
type seats struct {
	free  map[int]int // by NUMA node
	saved int         // calls of Commit
}

// seating is the [device.Partner] of one pod that takes seats.
type seating struct {
	seats     *seats
	wanted    []bool      // by container
	held      map[int]int // NUMA node of the seat, by container
	exact     bool        // Reserve fails unless it gets one NUMA node
	commitErr error
}

func (s *seats) seat(wanted ...bool) *seating {
	return &seating{seats: s, wanted: wanted, held: map[int]int{}}
}

func (p *seating) Hints(container int) [][]device.Hint {
	if container == device.WholePod && !slices.Contains(p.wanted, true) || container != device.WholePod && !p.wanted[container] {
		return nil
	}
	hints := []device.Hint{}
	for node := range 2 {
		if p.seats.free[node] > 0 {
			hints = append(hints, device.Hint{Nodes: 1 << node, Preferred: true})
		}
	}
	return [][]device.Hint{hints}
}

func (p *seating) Reserve(container int, affinity device.Hint) error {
	nodes := affinity.Nodes
	if !p.wanted[container] {
		return nil
	}
	if p.exact && nodes.Count() != 1 {
		return &device.Refusal{Reason: "NoSeat", Message: "seats of " + nodes.String() + " are not on one node"}
	}
	for node := range 2 {
		if p.seats.free[node] > 0 && (nodes == 0 || nodes.Has(node)) {
			p.seats.free[node]--
			p.held[container] = node
			return nil
		}
	}
	return &device.Refusal{Reason: "NoSeat", Message: "no seat on " + nodes.String()}
}

func (p *seating) Undo(from int) {
	for container, node := range p.held {
		if container >= from {
			p.seats.free[node]++
			delete(p.held, container)
		}
	}
}

func (p *seating) Commit() error {
	p.seats.saved++
	return p.commitErr
}

// devicesOf returns the IDs of the devices that each container of pod p holds, in the order of containers.
func devicesOf(a *device.Allocator) (ids []string) {
	for _, c := range a.Claims() {
		for _, d := range c.Devices {
			ids = append(ids, c.Container+"="+d.ID)
		}
	}
	return ids
}

func gpuPod(uid string, limits ...int) device.Pod {
	pod := device.Pod{UID: uid, Namespace: "default", Name: uid}
	for i, limit := range limits {
		pod.Containers = append(pod.Containers, device.Container{Name: string(rune('a' + i)), Limits: map[string]int{"example.com/gpu": limit}})
	}
	return pod
}

// newGPUs returns an allocator with a plugin for example.com/gpu on a machine with two NUMA nodes.
func newGPUs(t *testing.T, policy device.Policy, podScope bool, opts devicetest.Options, devices ...device.Device) (*device.Allocator, *devicetest.Plugin) {
	a, err := device.New(device.Options{
		Record: filepath.Join(t.TempDir(), "record"), Topology: device.Topology{Policy: policy, PodScope: podScope, Nodes: []device.NUMANode{{ID: 0}, {ID: 1}}}, Kubelet: device.Kubelet{NoWait: true},
	})
	require.NoError(t, err)
	opts.Devices = devices
	p := devicetest.NewPlugin(opts)
	feed, err := a.Connect("example.com/gpu", "", p)
	require.NoError(t, err)
	require.NoError(t, p.Attach(feed))
	return a, p
}

func gpu(id string, nodes device.Mask) device.Device {
	return device.Device{ID: id, Healthy: true, Nodes: nodes}
}

func TestPartnerAndDevicesComeFromOneNUMANode(t *testing.T) {
	for _, podScope := range []bool{false, true} {
		a, _ := newGPUs(t, device.SingleNUMANode, podScope, devicetest.Options{}, gpu("on0", 1), gpu("on1", 2))
		s := &seats{free: map[int]int{1: 1}}
		seat := s.seat(true)
		require.NoError(t, a.Reserve(t.Context(), gpuPod("p", 1), seat))
		assert.Equal(t, []string{"a=on1"}, devicesOf(a), "the only seat is on node 1")
		assert.Equal(t, map[int]int{0: 1}, seat.held)
		assert.Equal(t, 1, s.saved)

		refusal, ok := errors.AsType[*device.Refusal](a.Reserve(t.Context(), gpuPod("q", 1), s.seat(true)))
		require.True(t, ok)
		assert.Equal(t, device.ReasonTopologyAffinityError, refusal.Reason, "device on0 has no seat beside it")
		require.NoError(t, a.Reserve(t.Context(), gpuPod("r", 1), s.seat(false)), "the refused pod holds no device")
	}
}

func TestPartnerOfPodWithoutDevices(t *testing.T) {
	a, _ := newGPUs(t, device.Restricted, false, devicetest.Options{})
	s := &seats{free: map[int]int{0: 1, 1: 1}}
	seat := s.seat(false, true, true)
	require.NoError(t, a.Reserve(t.Context(), gpuPod("p", 0, 0, 0), seat))
	assert.Equal(t, map[int]int{1: 0, 2: 1}, seat.held)
	assert.Empty(t, a.Claims())

	refusal, ok := errors.AsType[*device.Refusal](a.Reserve(t.Context(), gpuPod("q", 0), s.seat(true)))
	require.True(t, ok)
	assert.Equal(t, device.ReasonTopologyAffinityError, refusal.Reason, "no seat is free")
}

func TestPodGetsAllResourcesOrNone(t *testing.T) {
	for name, test := range map[string]struct {
		free      map[int]int
		commitErr error
		faults    devicetest.Faults
		want      string
		saved     int
	}{
		"partner has no room":    {want: "NoSeat: no seat on {}"},
		"plugin refuses":         {free: map[int]int{0: 2}, faults: devicetest.Faults{Allocate: failAllocate}, want: "Allocate failed due to broken"},
		"partner cannot record":  {free: map[int]int{0: 2}, commitErr: errors.New("disk full"), want: "disk full", saved: 1},
		"second container fails": {free: map[int]int{0: 1}, want: "NoSeat: no seat on {}"},
	} {
		t.Run(name, func(t *testing.T) {
			a, p := newGPUs(t, device.None, false, devicetest.Options{}, gpu("x", 1), gpu("y", 1))
			p.SetFaults(test.faults)
			s := &seats{free: map[int]int{}}
			maps.Copy(s.free, test.free)
			seat := s.seat(true, true)
			seat.commitErr = test.commitErr
			require.ErrorContains(t, a.Reserve(t.Context(), gpuPod("p", 1, 1), seat), test.want)
			assert.Empty(t, seat.held)
			assert.Empty(t, a.Claims())
			assert.Equal(t, test.saved, s.saved)

			p.SetFaults(devicetest.Faults{})
			s.free[0] = 2
			require.NoError(t, a.Reserve(t.Context(), gpuPod("p", 1, 1), s.seat(true, true)), "the devices are free again")
			assert.Equal(t, []string{"a=x", "b=y"}, devicesOf(a))
		})
	}
}

func failAllocate(context.Context, []string, func() (device.Response, error)) (device.Response, error) {
	return device.Response{}, errors.New("broken")
}

// The guess that container a gets device both leaves b with a device on the other node than its seat. The plugin then prefers on0 for a.
func TestPartnerWaitsForPreferenceOfPlugin(t *testing.T) {
	a, p := newGPUs(t, device.BestEffort, false, devicetest.Options{Calls: device.PluginOptions{Preferred: true}}, gpu("both", 3), gpu("on0", 1))
	p.SetFaults(devicetest.Faults{Preferred: func(_ context.Context, open, _ []string, _ int, _ func() ([]string, error)) ([]string, error) {
		return slices.DeleteFunc(slices.Clone(open), func(id string) bool { return id != "on0" }), nil
	}})
	s := &seats{free: map[int]int{1: 1}}
	seat := s.seat(false, true)
	seat.exact = true
	require.NoError(t, a.Reserve(t.Context(), gpuPod("p", 1, 1), seat))
	assert.Equal(t, []string{"a=on0", "b=both"}, devicesOf(a))
	assert.Equal(t, map[int]int{1: 1}, seat.held)
}

func TestPartnerOfPodThatHasItsDevices(t *testing.T) {
	a, _ := newGPUs(t, device.Restricted, false, devicetest.Options{}, gpu("on0", 1), gpu("on1", 2))
	s := &seats{free: map[int]int{1: 1}}
	require.NoError(t, a.Reserve(t.Context(), gpuPod("p", 1)))
	assert.Equal(t, []string{"a=on0"}, devicesOf(a))

	require.Error(t, a.Reserve(t.Context(), gpuPod("p", 1), s.seat(true)), "the seat is on the other node")
	assert.Equal(t, []string{"a=on0"}, devicesOf(a), "the pod keeps its device")

	s.free[0] = 1
	seat := s.seat(true)
	require.NoError(t, a.Reserve(t.Context(), gpuPod("p", 1), seat))
	assert.Equal(t, map[int]int{0: 0}, seat.held)
	assert.Equal(t, []string{"a=on0"}, devicesOf(a))
}

// Both containers of the pod hold one device, which counts once among the devices that the pod holds.
func TestPartnerOfPodWhoseInitContainerLeftItsDevice(t *testing.T) {
	a, _ := newGPUs(t, device.SingleNUMANode, true, devicetest.Options{}, gpu("on0", 1))
	pod := gpuPod("p", 1, 1)
	pod.Containers[0].Kind = device.Init
	require.NoError(t, a.Reserve(t.Context(), pod))
	require.Equal(t, []string{"a=on0", "b=on0"}, devicesOf(a))

	seat := (&seats{free: map[int]int{0: 2, 1: 2}}).seat(true, true)
	require.NoError(t, a.Reserve(t.Context(), pod, seat))
	assert.Equal(t, map[int]int{0: 0, 1: 0}, seat.held)
}
