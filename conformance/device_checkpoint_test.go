// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/plugin"
)

// The kubelet's checkpoint manager reads each checkpoint that we write, verifies its checksum, and finds all claims in it. It writes the same bytes for
// the same entries, and we read its file.
func TestDeviceCheckpoint(t *testing.T) {
	dir := t.TempDir()
	manager, err := checkpointmanager.NewCheckpointManager(dir)
	require.NoError(t, err)
	path := filepath.Join(dir, plugin.CheckpointName)
	for i := range max(1, flags.Inputs()/100) {
		c := conformance.NewChoices(conformance.RandomBytes(flags.Seed(), uint64(i)))
		claims, healthy := randomClaims(c)
		require.NoError(t, plugin.ExportTo(path)(claims, healthy))
		ours, err := os.ReadFile(path)
		require.NoError(t, err)

		file := checkpoint.New([]checkpoint.PodDevicesEntry{}, map[string][]string{})
		require.NoError(t, manager.GetCheckpoint(plugin.CheckpointName, file), "%s", ours)
		entries, registered := file.GetData()
		require.Equal(t, healthy, registered)
		require.Len(t, entries, len(claims))
		for j := range entries {
			requireEntry(t, &claims[j], &entries[j])
		}

		require.NoError(t, manager.CreateCheckpoint(plugin.CheckpointName, checkpoint.New(entries, registered)))
		theirs, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(ours), string(theirs))
		previous, err := plugin.ReadCheckpoint(path)
		require.NoError(t, err)
		require.Len(t, previous.Claims, len(claims))
		for j := range claims {
			want := claims[j].Response
			if reflect.ValueOf(*want).IsZero() {
				want = nil // an empty response may be an unknown one
			}
			require.Equal(t, want, previous.Claims[j].Response)
			require.ElementsMatch(t, claims[j].Devices, previous.Claims[j].Devices)
		}
	}
}

// requireEntry compares an entry of the kubelet with our claim.
func requireEntry(t *testing.T, claim *device.Claim, entry *checkpoint.PodDevicesEntry) {
	t.Helper()
	require.Equal(t, []string{claim.PodUID, claim.Container, claim.Resource}, []string{entry.PodUID, entry.ContainerName, entry.ResourceName})
	want := checkpoint.DevicesPerNUMA{}
	for _, d := range claim.Devices {
		if d.Nodes == 0 {
			want[-1] = append(want[-1], d.ID)
		}
		for node := range d.Nodes.Nodes() {
			want[int64(node)] = append(want[int64(node)], d.ID)
		}
	}
	require.Equal(t, want, entry.DeviceIDs)
	response := &pluginapi.ContainerAllocateResponse{}
	require.NoError(t, proto.Unmarshal(entry.AllocResp, response))
	text, err := json.Marshal(response)
	require.NoError(t, err)
	for name, value := range claim.Response.Env {
		require.Equal(t, value, response.Envs[name], "%s", text)
	}
	require.Len(t, response.Mounts, len(claim.Response.Mounts))
	require.Len(t, response.Devices, len(claim.Response.Devices))
	require.Len(t, response.CdiDevices, len(claim.Response.CDIDevices))
	require.Len(t, response.Annotations, len(claim.Response.Annotations))
}

// randomClaims returns claims, sorted as our reader sorts them, and the healthy devices by resource.
func randomClaims(c *conformance.Choices) (claims []device.Claim, healthy map[string][]string) {
	healthy = map[string][]string{}
	texts := []string{"a", "b<&>", "c\u2028é\"\\", "d e\x00f", "{g:[h]}"} // JSON escapes some of them
	for r := range c.Int(4) {
		healthy[fmt.Sprintf("example.com/r%d", r)] = []string{}
	}
	for pod := range c.Int(5) {
		claim := device.Claim{PodUID: fmt.Sprintf("u%d", pod), Container: "main", Resource: fmt.Sprintf("example.com/r%d", c.Int(4)), Response: &device.Response{}}
		for i := range 1 + c.Int(4) {
			d := device.Device{ID: fmt.Sprintf("%s-%d", texts[c.Int(len(texts))], i), Nodes: device.Mask(c.Int(8))}
			if ids := healthy[claim.Resource]; ids != nil && c.OneIn(2) {
				d.Healthy = true
				healthy[claim.Resource] = append(ids, d.ID)
			}
			claim.Devices = append(claim.Devices, d)
		}
		r := claim.Response
		if c.OneIn(2) {
			r.Env = map[string]string{"A": texts[0], "B": texts[1], "C": texts[4]}
		}
		if c.OneIn(2) {
			r.Mounts = []cri.Mount{{ContainerPath: "/a", HostPath: "/b", ReadOnly: c.OneIn(2)}}
			r.Annotations = map[string]string{"example.com/a": texts[c.Int(len(texts))], "example.com/b": ""}
		}
		if c.OneIn(2) {
			r.Devices = []cri.Device{{ContainerPath: "/dev/a", HostPath: "/dev/b", Permissions: "rw"}}
			r.CDIDevices = []string{"example.com/class=a", "example.com/class=b"}
		}
		claims = append(claims, claim)
	}
	for name, ids := range healthy { // an ID is unique in its resource
		slices.Sort(ids)
		healthy[name] = slices.Compact(ids)
	}
	for i := range claims {
		for j := range claims[i].Devices {
			d := &claims[i].Devices[j]
			d.Healthy = slices.Contains(healthy[claims[i].Resource], d.ID)
		}
	}
	return claims, healthy
}
