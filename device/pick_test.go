// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/device"
)

// newPool returns a pool from the text of its devices: an ID, then its NUMA nodes after an @, then + if a container holds it, or ! if it is unhealthy. For example, "a@0
// b@01+ c!" has a on node 0, b on the nodes 0 and 1 and in use, and c, which is unhealthy and has no node.
func newPool(devices string) *device.Pool {
	p := &device.Pool{Resource: "example.com/gpu", InUse: map[string]bool{}}
	for field := range strings.FieldsSeq(devices) {
		name := strings.TrimRight(field, "+!")
		id, nodes, _ := strings.Cut(name, "@")
		d := device.Device{ID: id, Healthy: !strings.HasSuffix(field, "!")}
		for _, n := range nodes {
			d.Nodes |= 1 << (n - '0')
		}
		p.Devices = append(p.Devices, d)
		p.InUse[id] = strings.HasSuffix(field, "+")
	}
	return p
}

// A request is satisfied in this order: reusable devices, devices on the NUMA nodes of the hint, preferred devices, devices on other nodes, and devices without nodes.
func TestPickOrder(t *testing.T) {
	tests := map[string]struct {
		devices   string
		request   device.Request
		preferred string
		open      string // devices about which the plugin is asked
		want      string
	}{
		"first free and healthy ones":             {"a+ b! c d e", device.Request{Count: 2}, "", "c d e", "c d"},
		"preferred ones":                          {"a b c d", device.Request{Count: 2}, "d b", "a b c d", "d b"},
		"preferred ones that are not free":        {"a+ b c d", device.Request{Count: 2}, "a x d", "b c d", "d b"},
		"more preferred ones than needed":         {"a b c", device.Request{Count: 1}, "c b a", "a b c", "c"},
		"one preferred twice":                     {"a b c", device.Request{Count: 2}, "c c", "a b c", "c a"},
		"reusable ones suffice":                   {"a+ b+ c", device.Request{Count: 1, Reusable: []string{"b", "a"}}, "", "", "b"},
		"reusable ones and a free one":            {"a+ b c", device.Request{Count: 2, Reusable: []string{"a"}}, "c", "b c", "a c"},
		"more than needed on the hint's nodes":    {"a@0 b@1 c@1 d@1", device.Request{Count: 2, Nodes: 2}, "d", "b c d", "d b"},
		"exactly needed on the hint's nodes":      {"a@0 b@1 c@1", device.Request{Count: 2, Nodes: 2}, "a", "", "b c"},
		"less than needed on the hint's nodes":    {"a@0 b@1 c@2 d@2", device.Request{Count: 3, Nodes: 2}, "", "a c d", "b a c"},
		"preference beyond the hint's nodes":      {"a@0 b@1 c@2 d@2", device.Request{Count: 3, Nodes: 2}, "d", "a c d", "b d a"},
		"without nodes last":                      {"a b@0 c@1", device.Request{Count: 3, Nodes: 2}, "", "b a", "c b a"},
		"device of two nodes, one the hint's":     {"a@0 b@01 c@0", device.Request{Count: 1, Nodes: 2}, "", "", "b"},
		"hint without topology":                   {"a b", device.Request{Count: 1, Nodes: 2}, "", "a b", "a"},
		"container holds its devices":             {"a+ b", device.Request{Count: 1, Held: []string{"a"}}, "b", "", ""},
		"nothing requested":                       {"a", device.Request{}, "a", "", ""},
		"fewest free devices first, of hint":      {"a@0 b@0 c@1 d@2", device.Request{Count: 2, Nodes: 3}, "", "c a b", "c a"},
		"fewest free devices first, of the other": {"a@0 b@0 c@1 d@2", device.Request{Count: 2, Nodes: 4}, "", "c a b", "d c"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := device.Pick(newPool(tt.devices), tt.request)
			require.NoError(t, err)
			assert.Equal(t, tt.open, strings.Join(c.Open, " "))
			assert.Equal(t, tt.want, strings.Join(c.Complete(strings.Fields(tt.preferred)), " "))
		})
	}
}

// The errors are the kubelet's, word by word.
func TestPickErrors(t *testing.T) {
	tests := map[string]struct {
		devices string
		request device.Request
		want    string
	}{
		"too few":         {"a b+ c!", device.Request{Count: 2}, "requested number of devices unavailable for example.com/gpu. Requested: 2, Available: 1"},
		"too few beside":  {"a+ b", device.Request{Count: 3, Reusable: []string{"a"}}, "requested number of devices unavailable for example.com/gpu. Requested: 2, Available: 1"},
		"none healthy":    {"a! b!", device.Request{Count: 1}, "no healthy devices present; cannot allocate unhealthy devices example.com/gpu"},
		"held unhealthy":  {"a! b", device.Request{Count: 1, Held: []string{"a"}}, "previously allocated devices are no longer healthy; cannot allocate unhealthy devices example.com/gpu"},
		"held not listed": {"b", device.Request{Count: 1, Held: []string{"a"}}, "previously allocated devices are no longer healthy; cannot allocate unhealthy devices example.com/gpu"},
		"other count":     {"a+ b", device.Request{PodUID: "u", Container: "c", Count: 2, Held: []string{"a"}}, `pod "u" container "c" changed request for resource "example.com/gpu" from 1 to 2`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := device.Pick(newPool(tt.devices), tt.request)
			require.EqualError(t, err, tt.want)
		})
	}
}

// Whatever a plugin prefers: a request gets as many devices as it needs, each once, all of them healthy and free or reusable, and all on the hint's nodes if
// there are enough.
func TestPickProperties(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		pool := &device.Pool{Resource: "example.com/gpu", InUse: map[string]bool{}}
		byID := map[string]device.Device{}
		for i := range rnd.IntN(12) {
			d := device.Device{ID: fmt.Sprint("d", i), Healthy: rnd.IntN(4) > 0, Nodes: device.Mask(rnd.IntN(16))}
			pool.Devices = append(pool.Devices, d)
			pool.InUse[d.ID] = rnd.IntN(3) == 0
			byID[d.ID] = d
		}
		request := device.Request{Count: 1 + rnd.IntN(6), Nodes: device.Mask(rnd.IntN(16))}
		reusable := map[string]bool{}
		for id, used := range pool.InUse {
			if used && rnd.IntN(2) == 0 {
				request.Reusable, reusable[id] = append(request.Reusable, id), true
			}
		}
		c, err := device.Pick(pool, request)
		if err != nil {
			continue
		}
		var preferred []string
		for range rnd.IntN(8) {
			preferred = append(preferred, fmt.Sprint("d", rnd.IntN(14)))
		}
		got := c.Complete(preferred)
		require.Len(t, got, request.Count)
		seen, offNode, free := map[string]bool{}, 0, 0
		for _, id := range got {
			require.False(t, seen[id], "%s is chosen twice: %v", id, got)
			seen[id] = true
			require.True(t, reusable[id] || byID[id].Healthy && !pool.InUse[id], "%s is not free: %v", id, got)
			if !reusable[id] && byID[id].Nodes&request.Nodes == 0 {
				offNode++
			}
		}
		for _, d := range pool.Devices {
			if d.Healthy && !pool.InUse[d.ID] && d.Nodes&request.Nodes != 0 {
				free++
			}
		}
		if request.Nodes != 0 {
			needed := max(0, request.Count-len(request.Reusable))
			require.Equal(t, max(0, needed-free), offNode, "devices off the hint's nodes")
		}
	}
}

// Ten thousand devices, half of them in use, on eight NUMA nodes.
func BenchmarkPick(b *testing.B) {
	pool := &device.Pool{Resource: "example.com/gpu", InUse: map[string]bool{}}
	for i := range 10_000 {
		d := device.Device{ID: fmt.Sprint("device-", i), Healthy: true, Nodes: 1 << (i % 8)}
		pool.Devices = append(pool.Devices, d)
		pool.InUse[d.ID] = i%2 == 0
	}
	for b.Loop() {
		c, err := device.Pick(pool, device.Request{Count: 4, Nodes: 2})
		if err != nil {
			b.Fatal(err)
		}
		c.Complete(nil)
	}
}
