// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/utils/cpuset"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/conformance"
)

// Each state that we leave is read by the kubelet, which writes the same bytes, and the kubelet's file is read by ours.
func TestCPUManagerCheckpoint(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, cpus.CheckpointName)
	setPodLevelGate(t)
	machine, err := topology.Parse("1 socket 1 node 64 cores")
	require.NoError(t, err)
	policy, err := cpus.NewPolicy(machine, cpus.Config{Policy: cpus.PolicyStatic, ReservedMillis: 1000})
	require.NoError(t, err)
	for i := range max(1, flags.Inputs()/100) {
		c := conformance.NewChoices(conformance.RandomBytes(flags.Seed(), uint64(i)))
		s := randomCPUState(c)
		require.NoError(t, cpus.ExportTo(path)(cpus.PolicyStatic, s))
		ours, err := os.ReadFile(path)
		require.NoError(t, err)
		theirs, err := state.NewCheckpointState(klog.Logger{}, dir, cpus.CheckpointName, cpus.PolicyStatic, containermap.NewContainerMap())
		require.NoError(t, err, "%s", ours)
		require.Equal(t, s.Shared.String(), theirs.GetDefaultCPUSet().String())
		require.Len(t, theirs.GetCPUAssignments(), len(s.Assigned))
		for uid, containers := range s.Assigned {
			for name, set := range containers {
				has, ok := theirs.GetCPUSet(uid, name)
				if name == cpus.WholePod {
					has, ok = theirs.GetPodCPUSet(uid)
				}
				require.True(t, ok)
				require.Equal(t, set.String(), has.String())
			}
		}
		theirs.SetDefaultCPUSet(theirs.GetDefaultCPUSet()) // writes the file
		written, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(ours), string(written))
		again, err := policy.ReadCheckpoint(path)
		require.NoError(t, err)
		require.Equal(t, s, again)
	}
}

// randomCPUState returns a state whose names need the escapes of JSON.
func randomCPUState(c *conformance.Choices) cpus.State {
	names := []string{"a", "b<&>", "c\u2028é\"\\", "d e", "map[x:y] "}
	set := func() (s topology.CPUSet) {
		for range 1 + c.Int(6) {
			s.Add(c.Int(64))
		}
		return s
	}
	s := cpus.State{Shared: set(), Assigned: map[string]map[string]topology.CPUSet{}}
	for range c.Int(4) {
		containers := map[string]topology.CPUSet{}
		for range 1 + c.Int(3) {
			containers[names[c.Int(len(names))]] = set()
		}
		if c.OneIn(3) {
			containers[cpus.WholePod] = set()
		}
		s.Assigned[names[c.Int(len(names))]] = containers
	}
	return s
}

// Files of all versions, whole and damaged, are read with the same result and the same error. Without the gate PodLevelResourceManagers, the kubelet does not
// use the CPUs of whole pods.
func TestCPUManagerCheckpointVersions(t *testing.T) {
	for _, isGated := range []bool{false, true} {
		t.Run(fmt.Sprint(isGated), func(t *testing.T) {
			if isGated {
				setPodLevelGate(t)
			}
			compareCPUFiles(t, isGated)
		})
	}
}

// compareCPUFiles compares how random files are read.
func compareCPUFiles(t *testing.T, isGated bool) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, cpus.CheckpointName)
	machine, err := topology.Parse("1 socket 1 node 64 cores")
	require.NoError(t, err)
	policy, err := cpus.NewPolicy(machine, cpus.Config{Policy: cpus.PolicyStatic, ReservedMillis: 1000, Kubelet: cpus.Kubelet{RefuseChanged: true}})
	require.NoError(t, err)
	read, refused := 0, map[string]bool{}
	for i := range max(1, flags.Inputs()/50) {
		content := randomCPUFile(t, conformance.NewChoices(conformance.RandomBytes(flags.Seed(), uint64(i))))
		require.NoError(t, os.WriteFile(path, content, 0o600))
		ours, err := policy.ReadCheckpoint(path)
		theirs, kubeletErr := state.NewCheckpointState(klog.Logger{}, dir, cpus.CheckpointName, cpus.PolicyStatic, containermap.NewContainerMap())
		want := strings.ReplaceAll(describeError(kubeletErr), "checksum.Checksum", "uint64")
		require.Equal(t, strings.ReplaceAll(want, "state.podEntryJSON", "cpus.podEntryJSON"), describeError(err), "%s", content)
		if err != nil {
			refused[err.Error()] = true
			continue
		}
		read++
		require.Equal(t, theirs.GetDefaultCPUSet().String(), ours.Shared.String(), "%s", content)
		assigned, whole := toKubeletAssignments(ours)
		require.Equal(t, fmt.Sprint(theirs.GetCPUAssignments()), fmt.Sprint(assigned), "%s", content)
		if isGated {
			require.Equal(t, fmt.Sprint(theirs.GetPodCPUAssignments()), fmt.Sprint(whole), "%s", content)
		}
	}
	t.Logf("%d files are read, others have %d different errors", read, len(refused))
}

// toKubeletAssignments returns the CPUs of containers and those of whole pods.
func toKubeletAssignments(s cpus.State) (state.ContainerCPUAssignments, state.PodCPUAssignments) {
	assigned, whole := state.ContainerCPUAssignments{}, state.PodCPUAssignments{}
	for uid, containers := range s.Assigned {
		for name, set := range containers {
			if name == cpus.WholePod {
				whole[uid] = state.PodEntry{CPUSet: toKubeletSet(set)}
				continue
			}
			if assigned[uid] == nil {
				assigned[uid] = map[string]cpuset.CPUSet{}
			}
			assigned[uid][name] = toKubeletSet(set)
		}
	}
	return assigned, whole
}

// randomCPUFile returns a file of version 2, 3 or 4. Half of them have one wrong value.
func randomCPUFile(t *testing.T, c *conformance.Choices) []byte {
	t.Helper()
	lists := []string{"0-1", "", "3", "1,3-4"}
	if c.OneIn(4) {
		lists = append(lists, "3-1", "x", "1,", "1--2", "-1", "+5", " 1", "1-1")
	}
	list := func() string { return lists[c.Int(len(lists))] }
	entries := map[string]map[string]string{}
	if c.OneIn(2) {
		entries["pod"] = map[string]string{"container": list()} // of several wrong lists, the kubelet names any one
	}
	policy := "static"
	if c.OneIn(8) {
		policy = "none"
	}
	pods := state.PodCPUAssignments{}
	for i := range c.Int(3) {
		pods[fmt.Sprint("pod", i)] = state.PodEntry{CPUSet: cpuset.New(i, 10, 9, i+c.Int(4))}
	}
	var checkpoint checkpointmanager.Checkpoint
	switch c.Int(3) {
	case 0:
		checkpoint = &state.CPUManagerCheckpointV2{PolicyName: policy, DefaultCPUSet: list(), Entries: entries}
	case 1:
		checkpoint = &state.CPUManagerCheckpointV3{PolicyName: policy, DefaultCPUSet: list(), Entries: entries, PodEntries: pods}
	default:
		checkpoint = &state.CPUManagerCheckpoint{CheckpointData: state.CPUManagerCheckpointData{PolicyName: policy, DefaultCPUSet: list(), Entries: entries, PodEntries: pods}}
	}
	content, err := checkpoint.MarshalCheckpoint()
	require.NoError(t, err)
	if c.OneIn(2) {
		return damageCPUFile(t, c, content)
	}
	return content
}

// damageCPUFile changes one field of a file, or its text.
func damageCPUFile(t *testing.T, c *conformance.Choices, content []byte) []byte {
	t.Helper()
	if c.OneIn(8) {
		return content[:c.Int(len(content)%256)]
	}
	file := map[string]any{}
	require.NoError(t, json.Unmarshal(content, &file))
	values := []any{
		nil, "", 0, 1, "x",
		map[string]any{},
		map[string]any{"pod": "1"},
		map[string]any{"pod": nil},
		map[string]any{"pod": map[string]any{"c": 1}},
		[]int{1},
		map[string]any{"pod": map[string]any{"cpuSet": "y"}},
		map[string]any{"pod": map[string]any{"cpuSet": 1}},
		"{}", `{"policyName":1}`,
	}
	names := []string{"policyName", "defaultCpuSet", "entries", "podEntries", "checksum", "data", "dataChecksum"}
	name := names[c.Int(len(names))]
	if file[name] = values[c.Int(len(values))]; c.OneIn(4) {
		delete(file, name)
	}
	content, err := json.Marshal(file)
	require.NoError(t, err)
	return content
}
