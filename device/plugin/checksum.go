// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"strconv"

	"github.com/seed81659283/nodeagent/internal/kubechecksum"
)

// checksum returns the kubelet's checksum of the data in a checkpoint.
func (d *checkpointData) checksum() uint64 {
	h := kubechecksum.New()
	h.Write("(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)")
	kubechecksum.WriteList(h, d.PodDeviceEntries, func(e checkpointEntry) { e.hash(h) })
	h.Write(" RegisteredDevices:(map[string][]string)")
	hashIDs(h, d.RegisteredDevices, func(resource string) string { return resource })
	h.Write("}")
	return h.Sum()
}

// hash adds an entry to the dump.
func (e *checkpointEntry) hash(h *kubechecksum.Hash) {
	h.Write("{PodUID:(string)", e.PodUID, " ContainerName:(string)", e.ContainerName, " ResourceName:(string)", e.ResourceName)
	h.Write(" DeviceIDs:(checkpoint.DevicesPerNUMA)")
	hashIDs(h, e.DeviceIDs, func(node int64) string { return strconv.FormatInt(node, 10) })
	h.Write(" AllocResp:([]uint8)")
	kubechecksum.WriteList(h, e.AllocResp, func(b byte) { h.Write(strconv.Itoa(int(b))) })
	h.Write("}")
}

// hashIDs adds lists of device IDs to the dump.
func hashIDs[K string | int64](h *kubechecksum.Hash, m map[K][]string, key func(K) string) {
	kubechecksum.WriteMap(h, m, key, func(ids []string) {
		kubechecksum.WriteList(h, ids, func(id string) { h.Write(id) })
	})
}
