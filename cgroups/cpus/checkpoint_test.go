// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/topology"
)

// Files of a kubelet, with its checksums. Each is read, or is an error with the kubelet's text.
func TestDecodeCheckpoint(t *testing.T) {
	for _, tc := range []struct{ name, content, want string }{
		{"version 2 of the policy none", `{"policyName":"none","defaultCpuSet":"","checksum":1353318690}`, `none ""`},
		{"version 2 without containers", `{"policyName":"static","defaultCpuSet":"0-1","checksum":1636926438}`, `static "0-1"`},
		{"version 2 without checksum", `{"policyName":"static","defaultCpuSet":"0-1","entries":{"p":{"c":"3,2"}}}`, `static "0-1" p/c=2-3`},
		{"version 2 with a wrong checksum", `{"policyName":"static","defaultCpuSet":"0-1","checksum":1}`, "checkpoint is corrupted"},
		{
			"version 3", `{"policyName":"static","defaultCpuSet":"1-3","entries":{"pod":{"container1":"4-6","container2":"7-9"}},"checksum":1659543133}`,
			`static "1-3" pod/container1=4-6 pod/container2=7-9`,
		},
		{
			"version 1", `{"policyName":"static","defaultCpuSet":"1-3","entries":{"id":"4"},"checksum":1}`,
			"json: cannot unmarshal string into Go struct field CPUManagerCheckpointV2.entries of type map[string]string",
		},
		{"version 4", encode(t, cpus.State{Shared: topology.NewCPUSet(0), Assigned: map[string]map[string]topology.CPUSet{"p": {"c": topology.NewCPUSet(1, 2)}}}), `static "0" p/c=1-2`},
		{"version 4 with a name in other case", `{"data":"{\"policyName\":\"none\",\"defaultCPUSet\":\"4-6\"}","dataChecksum":657950972}`, `none "4-6"`},
		{"version 4 with a wrong checksum", `{"data":"{}","dataChecksum":1}`, "could not load v4 checkpoint: checkpoint is corrupted"},
		{
			"version 4 without document", `{"dataChecksum":1}`,
			"could not load v4 checkpoint: failed to deserialize cpu manager checkpoint data: unexpected end of JSON input",
		},
		{"an empty file", ``, "unexpected end of JSON input"},
		{"CPUs that are no list", `{"policyName":"static","defaultCpuSet":"0-x"}`, `could not parse default CPU set "0-x": strconv.Atoi: parsing "x": invalid syntax`},
		{"a range that ends before its start", `{"policyName":"static","defaultCpuSet":"3-1"}`, `could not parse default CPU set "3-1": invalid range "3-1" (3 > 1)`},
		{
			"a wrong list of a container", `{"policyName":"static","defaultCpuSet":"0","entries":{"p":{"c":"1,"}}}`,
			`could not parse cpuset "1," for container "c" in pod "p": strconv.Atoi: parsing "": invalid syntax`,
		},
		{
			"a container without name", `{"policyName":"static","defaultCpuSet":"0","entries":{"p":{"":"1"}}}`,
			`pod "p" has a container without name`,
		},
		{
			"more CPUs than any machine has", `{"policyName":"static","defaultCpuSet":"0-4000000000"}`,
			`could not parse default CPU set "0-4000000000": CPU 4000000000 is not below 2048`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			policy, s, err := cpus.DecodeCheckpoint([]byte(tc.content))
			if err != nil {
				require.EqualError(t, err, tc.want)
				return
			}
			require.Equal(t, tc.want, describeState(policy, s))
		})
	}
	_, _, err := cpus.DecodeCheckpoint(make([]byte, 16<<20+1))
	require.EqualError(t, err, "it has 16777217 bytes, more than 16777216")
}

func encode(t testing.TB, s cpus.State) string {
	t.Helper()
	content, err := cpus.EncodeCheckpoint(cpus.PolicyStatic, s)
	require.NoError(t, err)
	return string(content)
}

func describeState(policy string, s cpus.State) string {
	text := policy + ` "` + s.Shared.String() + `"`
	for _, uid := range []string{"p", "pod"} {
		for _, c := range []string{"c", "container1", "container2"} {
			if set, ok := s.Assigned[uid][c]; ok {
				text += " " + uid + "/" + c + "=" + set.String()
			}
		}
	}
	return text
}

// The top level of the file is version 2, for an older kubelet. A container that has lost its CPUs is left out: a kubelet would refuse its pod.
func TestEncodeCheckpoint(t *testing.T) {
	content := encode(t, cpus.State{Shared: topology.NewCPUSet(1, 2, 3), Assigned: map[string]map[string]topology.CPUSet{
		"pod": {"container1": topology.NewCPUSet(4, 5, 6), "lost": {}}, "other": {"lost": {}},
	}})
	var file map[string]any
	require.NoError(t, json.Unmarshal([]byte(content), &file))
	require.Equal(t, `{"policyName":"static","defaultCpuSet":"1-3","entries":{"pod":{"container1":"4-6"}}}`, file["data"])
	delete(file, "data")
	delete(file, "dataChecksum")
	old, err := json.Marshal(file)
	require.NoError(t, err)
	policy, s, err := cpus.DecodeCheckpoint(old)
	require.NoError(t, err)
	require.Equal(t, `static "1-3" pod/container1=4-6`, describeState(policy, s))

	content2, err := cpus.EncodeCheckpoint(cpus.PolicyNone, cpus.State{Shared: topology.NewCPUSet(1)})
	require.NoError(t, err)
	require.Contains(t, string(content2), `{"policyName":"none","defaultCpuSet":"","checksum":1353318690,`)
}

func TestReadCheckpoint(t *testing.T) {
	policy, _ := newPolicy(t, "1 socket 1 node 4 cores")
	path := filepath.Join(t.TempDir(), cpus.CheckpointName)
	_, err := policy.ReadCheckpoint(path)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte(`{"policyName":"static","defaultCpuSet":"3-1"}`), 0o600))
	_, err = policy.ReadCheckpoint(path)
	require.EqualError(t, err, `could not restore state from checkpoint: could not parse default CPU set "3-1": invalid range "3-1" (3 > 1), `+
		`please drain this node and delete the CPU manager checkpoint file "`+path+`" before restarting Kubelet`)
	require.NoError(t, cpus.ExportTo(path)(cpus.PolicyNone, cpus.State{}))
	s, err := policy.ReadCheckpoint(path)
	require.NoError(t, err, "another policy is no error")
	require.Empty(t, s.Assigned)
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Symlink("/etc/passwd", path))
	_, err = policy.ReadCheckpoint(path)
	require.Error(t, err)
	require.False(t, errors.Is(err, fs.ErrNotExist))
}

// Any file is decoded or an error, and a decoded state survives a round.
func FuzzDecodeCheckpoint(f *testing.F) {
	f.Add([]byte(`{"policyName":"static","defaultCpuSet":"1-3","entries":{"pod":{"container1":"4-6"}},"podEntries":{"pod":{"cpuSet":"1"}},"checksum":1659543133}`))
	f.Add([]byte(encode(f, cpus.State{Shared: topology.NewCPUSet(1), Assigned: map[string]map[string]topology.CPUSet{"a": {"b": topology.NewCPUSet(2)}}})))
	f.Add([]byte(`{"data":"` + strings.Repeat("[", 100) + `","dataChecksum":1}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		_, s, err := cpus.DecodeCheckpoint(content)
		if err != nil {
			return
		}
		_, again, err := cpus.DecodeCheckpoint([]byte(encode(t, s)))
		require.NoError(t, err)
		require.Equal(t, s.Shared, again.Shared)
	})
}
