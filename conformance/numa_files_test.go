// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"

	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/conformance"
)

// A kubelet starts with each checkpoint that we write, and writes the same bytes. We read what it writes in the versions 1, 2 and 3, and refuse the same
// damaged files. With another policy, both refuse the file with the same text.
func TestNUMACheckpoint(t *testing.T) { compareNUMACheckpoints(t, makeNUMAInput) }

// The same with the gate PodLevelResourceManagers, with which the checkpoint has the memory of pods.
func TestPodLevelMemoryCheckpoint(t *testing.T) {
	setPodLevelGate(t)
	compareNUMACheckpoints(t, makePodLevelNUMAInput)
}

// compareNUMACheckpoints compares the checkpoints after random sequences.
func compareNUMACheckpoints(t *testing.T, makeInput func(*conformance.Choices) numaInput) {
	t.Helper()
	written := 0
	for i := range max(20, flags.Inputs()/1000) {
		c := conformance.NewChoices(conformance.RandomBytes(flags.Seed(), uint64(i)))
		in := makeInput(c)
		in.Kubelet = numa.Kubelet{FreeInit: true, RefuseChanged: true}
		for op := range in.Ops {
			in.Ops[op].Changed = 0 // the kubelet starts on the machine of in
		}
		ours := newOurMemory(&in)
		in.play(ours)
		if ours.mixed || in.has(numaCrash) || in.hasUnknownPages() { // the kubelet does not start with them
			continue
		}
		written++
		checkNUMACheckpoint(t, &in, ours, c)
	}
	require.Positive(t, written)
}

func checkNUMACheckpoint(t *testing.T, in *numaInput, ours *ourMemory, c *conformance.Choices) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, numa.CheckpointName)
	require.NoError(t, numa.WriteCheckpoint(path, ours.policy.Export(ours.state)))
	content, err := os.ReadFile(path)
	require.NoError(t, err)

	restored, err := state.NewCheckpointState(klog.Logger{}, dir, numa.CheckpointName, numa.PolicyStatic)
	require.NoError(t, err, "%s", content)
	require.Equal(t, ours.nodes(), ourNodes(restored.GetMachineState()))
	k := &kubeletMemory{in: in, state: restored}
	require.Equal(t, ours.blocks(), k.blocks())
	if !hasNothing(ours) {
		require.NoError(t, k.startPolicy(in.machine(0)))
	}
	restored.SetMachineState(restored.GetMachineState())
	theirs, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(content), string(theirs))

	_, err = state.NewCheckpointState(klog.Logger{}, dir, numa.CheckpointName, numa.PolicyNone)
	none, errNone := numa.NewPolicy(&in.Machine, numa.Config{Kubelet: in.Kubelet})
	require.NoError(t, errNone)
	saved, errRead := numa.ReadCheckpoint(path)
	require.NoError(t, errRead)
	_, errRestore := none.Restore(saved)
	require.EqualError(t, errRestore, err.Error())

	saved.Path = ""
	require.Equal(t, ours.policy.Save(ours.state).Nodes, saved.Nodes)
	manager, err := checkpointmanager.NewCheckpointManager(dir)
	require.NoError(t, err)
	machine, assignments, pods := restored.GetMachineState(), restored.GetMemoryAssignments(), restored.GetPodMemoryAssignments()
	versions := []checkpointmanager.Checkpoint{
		&state.MemoryManagerCheckpointV2{PolicyName: numa.PolicyStatic, MachineState: machine, Entries: assignments, PodEntries: pods},
	}
	if len(pods) == 0 {
		versions = append(versions, &state.MemoryManagerCheckpointV1{PolicyName: numa.PolicyStatic, MachineState: machine, Entries: assignments})
	}
	for _, old := range versions {
		require.NoError(t, manager.CreateCheckpoint(numa.CheckpointName, old))
		previous, err := numa.ReadCheckpoint(path)
		require.NoError(t, err)
		previous.Path = ""
		require.Equal(t, saved, previous)
	}
	old, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, file := range [][]byte{content, old} {
		checkDamaged(t, dir, file, c)
	}
}

// hasNothing reports whether a node reserves more than it has: the kubelet's numbers wrap around.
func hasNothing(o *ourMemory) bool {
	for _, n := range o.nodes() {
		if n.Memory[numa.Memory].Allocatable == 0 {
			return true
		}
	}
	return false
}

// checkDamaged changes a byte of a checkpoint, which both sides must read or refuse, with the same text if the checksum is wrong.
func checkDamaged(t *testing.T, dir string, content []byte, c *conformance.Choices) {
	t.Helper()
	path := filepath.Join(dir, numa.CheckpointName)
	for range 4 {
		damaged := append([]byte{}, content...)
		damaged[int(c.Uint64()%uint64(len(damaged)))] ^= 1 << c.Int(7)
		require.NoError(t, os.WriteFile(path, damaged, 0o600))
		_, theirs := state.NewCheckpointState(klog.Logger{}, dir, numa.CheckpointName, numa.PolicyStatic)
		saved, ours := numa.ReadCheckpoint(path)
		if ours == nil && saved.Policy != numa.PolicyStatic {
			ours = errors.New("the kubelet compares the policy while it reads")
		}
		require.Equal(t, theirs == nil, ours == nil, "%v, %v: %s", theirs, ours, damaged)
		if theirs != nil && strings.Contains(theirs.Error(), "checkpoint is corrupted") {
			require.EqualError(t, ours, theirs.Error())
		}
	}
}
