// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/device"
)

// describe returns hints as text, such as "{0}! {0,1}", with an exclamation mark after a preferred one.
func describe(hints []device.Hint) string {
	if hints == nil {
		return "no preference"
	}
	var texts []string
	for _, h := range hints {
		text := h.Nodes.String()
		if h.Preferred {
			text += "!"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, " ")
}

// A hint is a set of NUMA nodes with enough free devices. It is preferred if it is as small as one that has enough devices, free or not.
func TestHints(t *testing.T) {
	const machine = 0b1111
	tests := map[string]struct {
		devices string
		request device.Request
		want    string
	}{
		"no topology":                        {"a b", device.Request{Count: 1}, "no preference"},
		"one node suffices":                  {"a@0 b@1", device.Request{Count: 1}, "{0}! {1}! {0,1}"},
		"two nodes are needed":               {"a@0 b@1", device.Request{Count: 2}, "{0,1}!"},
		"two are needed only now":            {"a@0 b@0+ c@1", device.Request{Count: 2}, "{0,1}"},
		"unhealthy devices count as present": {"a@0 b@0! c@1", device.Request{Count: 2}, "{0,1}"},
		"too few free":                       {"a@0 b@1+", device.Request{Count: 2}, ""},
		"device of two nodes":                {"a@02 b@1", device.Request{Count: 1}, "{0}! {1}! {2}! {0,1} {0,2} {1,2} {0,1,2}"},
		"reusable device has to be included": {"a@0+ b@1", device.Request{Count: 1, Reusable: []string{"a"}}, "{0}! {0,1}"},
		"reusable device counts":             {"a@0+ b@0", device.Request{Count: 2, Reusable: []string{"a"}}, "{0}!"},
		"held devices decide":                {"a@0+ b@1", device.Request{Count: 1, Held: []string{"a"}}, "{0}! {0,1}"},
		"held number differs":                {"a@0+ b@1", device.Request{Count: 2, Held: []string{"a"}}, ""},
		"node that the machine lacks":        {"a@7 b@1", device.Request{Count: 1}, "{1}!"},
		"no node that the machine has":       {"a@7", device.Request{Count: 1}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			hints, err := device.Hints(newPool(tt.devices), tt.request, machine)
			require.NoError(t, err)
			assert.Equal(t, tt.want, describe(hints))
		})
	}
}

// A plugin cannot make the agent enumerate the sets of many NUMA nodes.
func TestHintsRefuseMoreThanEightNodes(t *testing.T) {
	pool := newPool("a@0 b@1 c@2 d@3 e@4 f@5 g@6 h@7 i@8")
	_, err := device.Hints(pool, device.Request{Count: 1}, ^device.Mask(0))
	require.EqualError(t, err, "resource example.com/gpu has devices on 9 NUMA nodes: hints are computed for at most 8")
	hints, err := device.Hints(pool, device.Request{Count: 1}, 0xff)
	require.NoError(t, err)
	require.Len(t, hints, 255)
}

// Merged hints of policies, for a machine with four NUMA nodes.
func TestMerge(t *testing.T) {
	const machine = 0b1111
	preferred := func(nodes ...device.Mask) (hints []device.Hint) {
		for _, n := range nodes {
			hints = append(hints, device.Hint{Nodes: n, Preferred: true})
		}
		return hints
	}
	type merged struct {
		nodes                         device.Mask
		preferred, restricted, single bool // admitted by the policies
	}
	impossible := []device.Hint{}
	tests := map[string]struct {
		resources [][]device.Hint
		want      merged
	}{
		"no resource":                    {nil, merged{machine, true, true, true}},
		"no preference":                  {[][]device.Hint{nil}, merged{machine, true, true, true}},
		"impossible":                     {[][]device.Hint{impossible}, merged{machine, false, false, false}},
		"one of two nodes":               {[][]device.Hint{preferred(0b0010, 0b0001)}, merged{0b0001, true, true, true}},
		"same node":                      {[][]device.Hint{preferred(1, 2), preferred(2, 4)}, merged{2, true, true, true}},
		"no common preferred node":       {[][]device.Hint{preferred(1), {{Nodes: 2, Preferred: true}, {Nodes: 3}}}, merged{1, false, false, false}},
		"no common node":                 {[][]device.Hint{preferred(1), preferred(2)}, merged{machine, false, false, false}},
		"preferred beside no preference": {[][]device.Hint{nil, preferred(4)}, merged{4, true, true, true}},
		"two nodes":                      {[][]device.Hint{preferred(0b0011)}, merged{0b0011, true, true, false}},
		"as many nodes as the most demanding": {
			[][]device.Hint{{{Nodes: 1}, {Nodes: 3}}, {{Nodes: 3}, {Nodes: 7}}}, merged{3, false, false, false},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			best, admitted := device.BestEffort.Merge(tt.resources, machine)
			assert.Equal(t, device.Hint{Nodes: tt.want.nodes, Preferred: tt.want.preferred}, best)
			assert.True(t, admitted)
			best, admitted = device.Restricted.Merge(tt.resources, machine)
			assert.Equal(t, device.Hint{Nodes: tt.want.nodes, Preferred: tt.want.preferred}, best)
			assert.Equal(t, tt.want.restricted, admitted)
			_, admitted = device.SingleNUMANode.Merge(tt.resources, machine)
			assert.Equal(t, tt.want.single, admitted)
			best, admitted = device.None.Merge(tt.resources, machine)
			assert.Equal(t, device.Hint{}, best)
			assert.True(t, admitted)
		})
	}
}

// Under single-numa-node, all nodes of the machine mean any node.
func TestMergeSingleNUMANode(t *testing.T) {
	best, admitted := device.SingleNUMANode.Merge([][]device.Hint{nil}, 0b11)
	require.Equal(t, device.Hint{Preferred: true}, best)
	require.True(t, admitted)
	best, admitted = device.SingleNUMANode.Merge([][]device.Hint{{{Nodes: 2, Preferred: true}, {Nodes: 3}}}, 0b11)
	require.Equal(t, device.Hint{Nodes: 2, Preferred: true}, best)
	require.True(t, admitted)
}

func TestPolicyString(t *testing.T) {
	require.Equal(t, []string{"none", "best-effort", "restricted", "single-numa-node", "invalid"}, []string{
		device.None.String(), device.BestEffort.String(), device.Restricted.String(), device.SingleNUMANode.String(), device.Policy(9).String(),
	})
}

func TestMask(t *testing.T) {
	m, err := device.NewMask(3, 0)
	require.NoError(t, err)
	require.Equal(t, "{0,3}", m.String())
	require.True(t, m.Has(3))
	require.False(t, m.Has(1))
	require.False(t, m.Has(-1))
	require.False(t, m.Has(64))
	require.True(t, device.Mask(0b1000).IsNarrowerThan(0b0011))
	require.True(t, device.Mask(0b0011).IsNarrowerThan(0b0101))
	_, err = device.NewMask(0, 64)
	require.EqualError(t, err, "NUMA node 64: must be between 0 and 63")
}

// Eight NUMA nodes with 512 devices.
func BenchmarkHints(b *testing.B) {
	pool := &device.Pool{Resource: "example.com/gpu", InUse: map[string]bool{}}
	for i := range 512 {
		pool.Devices = append(pool.Devices, device.Device{ID: fmt.Sprint("device-", i), Healthy: true, Nodes: 1 << (i % 8)})
		pool.InUse[pool.Devices[i].ID] = i%3 == 0
	}
	for b.Loop() {
		if _, err := device.Hints(pool, device.Request{Count: 4}, 0xff); err != nil {
			b.Fatal(err)
		}
	}
}
