// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
)

// usedState returns a policy with two nodes and a state with a container on each, one of them with huge pages.
func usedState(t *testing.T) (*numa.Policy, numa.State) {
	pages := []topology.HugePages{{Size: 2 * mib, Count: 2}}
	p := newPolicy(t, []topology.Node{{ID: 0, Memory: 20 * mib, HugePages: pages}, {ID: 1, Memory: 20 * mib, HugePages: pages}})
	s, err := p.Reserve(numa.State{}, newPod("a", map[string]uint64{numa.Memory: 4 * mib, "hugepages-2Mi": 2 * mib}), 0, device.Hint{})
	require.NoError(t, err)
	s, err = p.Reserve(s, newPod("b", map[string]uint64{numa.Memory: 0}), 0, device.Hint{Nodes: 2})
	require.NoError(t, err)
	return p, s
}

func TestRecordAndCheckpointHaveTheState(t *testing.T) {
	p, s := usedState(t)
	record, checkpoint := filepath.Join(t.TempDir(), "new", "record"), filepath.Join(t.TempDir(), numa.CheckpointName)
	require.NoError(t, numa.WriteRecord(record, p.Save(s)))
	require.NoError(t, numa.WriteCheckpoint(checkpoint, p.Export(s)))
	for path, read := range map[string]func(string) (numa.Saved, error){record: numa.ReadRecord, checkpoint: numa.ReadCheckpoint} {
		saved, err := read(path)
		require.NoError(t, err)
		saved.Path = ""
		require.Equal(t, p.Save(s), saved)
		restored, err := p.Restore(saved)
		require.NoError(t, err)
		require.Empty(t, restored.Changes)
		require.Equal(t, p.Save(s), p.Save(restored.State))
	}
	for _, read := range []func(string) (numa.Saved, error){numa.ReadRecord, numa.ReadCheckpoint} {
		_, err := read(filepath.Join(t.TempDir(), "missing"))
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
}

// Each changed byte of a file is an error, or has no meaning.
func TestDamagedFilesAreErrors(t *testing.T) {
	p, s := usedState(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for name, f := range map[string]struct {
		write func(string, numa.Saved) error
		read  func(string) (numa.Saved, error)
	}{"record": {numa.WriteRecord, numa.ReadRecord}, "checkpoint": {numa.WriteCheckpoint, numa.ReadCheckpoint}} {
		require.NoError(t, f.write(path, p.Save(s)))
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		for i := 0; i < len(content); i += 7 {
			changed := append([]byte{}, content...)
			changed[i] ^= 2
			require.NoError(t, os.WriteFile(path, changed, 0o600))
			saved, err := f.read(path)
			if err == nil { // of a checkpoint, only version 3 counts
				saved.Path = ""
				require.Equal(t, p.Save(s), saved, "%s, byte %d", name, i)
			}
		}
		require.NoError(t, os.WriteFile(path, content[:len(content)/2], 0o600))
		_, err = f.read(path)
		require.ErrorContains(t, err, path)
	}
}

// The texts are those with which a kubelet does not start.
func TestReadCheckpointNamesTheFault(t *testing.T) {
	path := filepath.Join(t.TempDir(), numa.CheckpointName)
	const machine = `"machineState":{"0":{"numberOfAssignments":0,"memoryMap":{"memory":{"total":2048,"systemReserved":512,"allocatable":1536,"reserved":512,"free":1024}},"cells":[]}}`
	entries := func(block string) string {
		return `{"policyName":"Static",` + machine + `,"entries":{"pod":{"c":[` + block + `]}},"checksum":0}`
	}
	for name, tc := range map[string]struct{ content, want string }{
		"checksum 1":      {`{"policyName":"Static",` + machine + `,"checksum":1}`, "checkpoint is corrupted"},
		"data":            {`{"policyName":"Static","checksum":0,"data":"{","dataChecksum":1}`, "could not load v3 checkpoint: failed to deserialize memory manager checkpoint data: unexpected end of JSON input"},
		"data checksum":   {`{"policyName":"Static","checksum":0,"data":"{}","dataChecksum":1}`, "could not load v3 checkpoint: checkpoint is corrupted"},
		"NUMA node":       {entries(`{"numaAffinity":[64],"type":"memory","size":1}`), `pod "pod", container "c": NUMA node 64: must be between 0 and 63`},
		"twice":           {entries(`{"numaAffinity":[0,0],"type":"memory","size":1}`), `pod "pod", container "c": the NUMA nodes [0 0] are listed twice`},
		"no NUMA node":    {entries(`{"type":"memory","size":1}`), `pod "pod", container "c": block 0 of type "memory" on NUMA nodes {} with 1 bytes is invalid`},
		"size":            {entries(`{"numaAffinity":[0],"type":"memory","size":9223372036854775808}`), `pod "pod", container "c": block 0 of type "memory" on NUMA nodes {0} with 9223372036854775808 bytes is invalid`},
		"type twice":      {entries(`{"numaAffinity":[0],"type":"memory"},{"numaAffinity":[0],"type":"memory"}`), `pod "pod", container "c": block 1 of type "memory" on NUMA nodes {0} with 0 bytes is invalid`},
		"null node":       {`{"machineState":{"7":null}}`, "NUMA node 7 is null"},
		"null memory":     {`{"machineState":{"7":{"memoryMap":{"memory":null}}}}`, "NUMA node 7: memory is null"},
		"no containers":   {`{"entries":{"pod":{}}}`, `pod "pod" has no UID or no containers`},
		"container name":  {`{"entries":{"pod":{"":[]}}}`, `pod "pod", container "": it has no name`},
		"memory, no name": {`{"entries":{"pod":{"":[{"numaAffinity":[0],"type":"memory","size":1}]}}}`, `pod "pod", container "": it has no name`},
		"elements":        {`{"entries":{` + strings.Repeat(`"a":{},`, 1<<17) + `"a":{}}}`, "it has 262147 elements, more than 262144"},
	} {
		require.NoError(t, os.WriteFile(path, []byte(tc.content), 0o600))
		_, err := numa.ReadCheckpoint(path)
		require.EqualError(t, err, fmt.Sprintf("could not restore state from checkpoint: %s, please drain this node and delete the memory manager checkpoint file %q before restarting Kubelet", tc.want, path), name)
	}
}

// The checksums of the versions 1 and 2 are the kubelet's. The first container has the memory that a pod shares.
func TestReadCheckpointReadsAllVersions(t *testing.T) {
	path := filepath.Join(t.TempDir(), numa.CheckpointName)
	content, err := os.ReadFile("testdata/checkpoint.v1.json")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, content, 0o600))
	saved, err := numa.ReadCheckpoint(path)
	require.NoError(t, err)
	block := []numa.Block{{Type: numa.Memory, Nodes: 1, Size: 512}}
	require.Equal(t, numa.Saved{
		Path: path, Policy: "static",
		Nodes: []numa.Node{{ID: 0, Memory: map[string]numa.Amounts{numa.Memory: {Total: 2048, SystemReserved: 512, Allocatable: 1536, Reserved: 512, Free: 1024}}}},
		Pods:  map[string]map[string][]numa.Block{"pod": {"container1": block}},
	}, saved)

	// version 2, with the memory of a pod
	text := strings.Replace(string(content), `"checksum":4215593881`, `"podEntries":{"pod":{"memoryBlocks":[{"numaAffinity":[0],"type":"memory","size":512}]}},"checksum":1278640530`, 1)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	second, err := numa.ReadCheckpoint(path)
	require.NoError(t, err)
	saved.Pods["pod"][numa.WholePod] = block
	require.Equal(t, saved, second)

	// version 3, with two containers that share the memory of their pod
	data := `{"policyName":"Static","machineState":{},"entries":{"pod":{"a":[{"numaAffinity":[1],"type":"memory","size":3}],"b":[{"numaAffinity":[1],"type":"memory","size":3}]}},` +
		`"podEntries":{"pod":{"memoryBlocks":[{"numaAffinity":[1],"type":"memory","size":5}]}}}`
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, `{"policyName":"x","checksum":1,"data":%q,"dataChecksum":%d}`, data, numa.SumText(data)), 0o600))
	third, err := numa.ReadCheckpoint(path)
	require.NoError(t, err)
	part := []numa.Block{{Type: numa.Memory, Nodes: 2, Size: 3}}
	require.Equal(t, map[string][]numa.Block{numa.WholePod: {{Type: numa.Memory, Nodes: 2, Size: 5}}, "a": part, "b": part}, third.Pods["pod"])
	require.NoError(t, numa.WriteCheckpoint(path, third))
	again, err := numa.ReadCheckpoint(path)
	require.NoError(t, err)
	require.Equal(t, third.Pods, again.Pods)
}

// A kubelet that takes the node over gets no blocks on nodes that the machine lacks, because it would not start.
func TestExportLeavesOutMissingNodes(t *testing.T) {
	before := newPolicy(t, []topology.Node{{ID: 0, Memory: 10 * mib}, {ID: 1, Memory: 10 * mib}})
	s, err := before.Reserve(numa.State{}, newPod("a", map[string]uint64{numa.Memory: 15 * mib}), 0, device.Hint{})
	require.NoError(t, err)
	p := newPolicy(t, []topology.Node{{ID: 0, Memory: 10 * mib}})
	restored, err := p.Restore(before.Save(s))
	require.NoError(t, err)
	require.Equal(t, []string{"pod a, container c: the machine has no NUMA nodes {1}", "the NUMA nodes were [0 1], and are [0]"}, restored.Changes)
	require.Equal(t, s.Blocks("a", "c"), restored.State.Blocks("a", "c"))
	require.Equal(t, 1, p.Nodes(restored.State)[0].Assignments)
	require.Equal(t, p.Save(numa.State{}).Nodes, p.Export(restored.State).Nodes)
	require.Empty(t, p.Export(restored.State).Pods)
	require.Equal(t, p.Nodes(numa.State{}), p.Nodes(p.Release(restored.State, "a")))
}

// A file whose nodes have more free memory than they can have keeps the blocks; their use is computed again.
func TestRestoreDoesNotTrustFreeMemory(t *testing.T) {
	p := newPolicy(t, []topology.Node{{ID: 0, Memory: 20 * mib}, {ID: 1, Memory: 20 * mib}})
	s, err := p.Reserve(numa.State{}, newPod("a", map[string]uint64{numa.Memory: 5 * mib}), 0, device.Hint{Nodes: 3})
	require.NoError(t, err)
	saved := p.Save(s)
	for i, free := range []uint64{20 * mib, 14 * mib} { // the first node has 19 MiB for containers
		a := saved.Nodes[i].Memory[numa.Memory]
		a.Free = free
		saved.Nodes[i].Memory[numa.Memory] = a
	}
	restored, err := p.Restore(saved)
	require.NoError(t, err)
	require.Equal(t, p.Nodes(s), p.Nodes(restored.State))
}

// FuzzReadCheckpoint reads any content. What it returns can be restored, all memory of it can be released, and a written checkpoint is read as it was.
func FuzzReadCheckpoint(f *testing.F) {
	content, err := os.ReadFile("testdata/checkpoint.v1.json")
	require.NoError(f, err)
	f.Add(content)
	f.Add([]byte(`{"policyName":"Static","machineState":{"0":{"numberOfAssignments":1,"memoryMap":{"memory":{"free":9}},"cells":[0]}},"entries":{"p":{"c":[{"numaAffinity":[0,1],"type":"memory","size":9}]}}}`))
	f.Add([]byte(`{"data":"{\"policyName\":\"Static\",\"machineState\":{}}","dataChecksum":3129203471}`))
	p := newPolicy(f, []topology.Node{{ID: 0, Memory: 10 * mib}, {ID: 1, Memory: 10 * mib}})
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(dir, numa.CheckpointName)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		saved, err := numa.ReadCheckpoint(path)
		if err != nil {
			return
		}
		restored, err := p.Restore(saved)
		require.NoError(t, err)
		s := restored.State
		for _, n := range p.Nodes(s) {
			for _, a := range n.Memory {
				require.Equal(t, a.Allocatable, a.Free+a.Reserved)
			}
		}
		require.NoError(t, numa.WriteCheckpoint(path, p.Export(s)))
		again, err := numa.ReadCheckpoint(path)
		require.NoError(t, err)
		require.Equal(t, p.Export(s).Nodes, again.Nodes)
		for _, uid := range s.Pods() {
			s = p.Release(s, uid)
		}
		require.Equal(t, p.Nodes(numa.State{}), p.Nodes(s))
	})
}

// FuzzReadRecord reads any document with the right checksum.
func FuzzReadRecord(f *testing.F) {
	f.Add([]byte(`{"policy":"Static","nodes":[{"id":0,"group":1,"memory":{"memory":{"free":9}}}],"pods":[{"uid":"p","containers":[{"name":"c","blocks":[{"type":"memory","nodes":3,"size":9}]}]}]}`))
	f.Add([]byte(`{"pods":[{"uid":"p","containers":[{"name":"c"},{"name":"c"}]}]}`))
	p := newPolicy(f, []topology.Node{{ID: 0, Memory: 10 * mib}, {ID: 1, Memory: 10 * mib}})
	f.Fuzz(func(t *testing.T, doc []byte) {
		saved, err := numa.DecodeRecord(doc)
		if err != nil {
			return
		}
		restored, err := p.Restore(saved)
		require.NoError(t, err)
		s := restored.State
		for _, uid := range s.Pods() {
			s = p.Release(s, uid)
		}
		require.Equal(t, p.Nodes(numa.State{}), p.Nodes(s))
	})
}
