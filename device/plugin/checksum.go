// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bufio"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strconv"
)

// checksum returns the kubelet's checksum of the data in a checkpoint: FNV-32a of a dump in the format of go-spew, with the names
// of the kubelet's types. Source: pkg/kubelet/checkpointmanager/checksum, pkg/util/hash, k8s.io/utils/dump.
func (d *checkpointData) checksum() uint64 {
	hash := fnv.New32a()
	w := bufio.NewWriter(hash)
	d.dump(w)
	_ = w.Flush() // a hash never fails
	return uint64(hash.Sum32())
}

// dumper is a writer that keeps its error, such as a bufio.Writer.
type dumper interface {
	io.Writer
	io.StringWriter
}

// dump writes the data as the kubelet dumps it. A nil slice or map is written as <nil>, an empty slice as [].
func (d *checkpointData) dump(w dumper) {
	writeAll(w, "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)")
	dumpList(w, d.PodDeviceEntries, func(e checkpointEntry) { e.dump(w) })
	writeAll(w, " RegisteredDevices:(map[string][]string)")
	dumpMap(w, d.RegisteredDevices, func(resource string) string { return resource })
	writeAll(w, "}")
}

func (e *checkpointEntry) dump(w dumper) {
	writeAll(w, "{PodUID:(string)", e.PodUID, " ContainerName:(string)", e.ContainerName, " ResourceName:(string)", e.ResourceName)
	writeAll(w, " DeviceIDs:(checkpoint.DevicesPerNUMA)")
	dumpMap(w, e.DeviceIDs, func(node int64) string { return strconv.FormatInt(node, 10) })
	writeAll(w, " AllocResp:([]uint8)")
	dumpList(w, e.AllocResp, func(b byte) { writeAll(w, strconv.Itoa(int(b))) })
	writeAll(w, "}")
}

// dumpMap writes a map with its keys in ascending order.
func dumpMap[K string | int64](w dumper, m map[K][]string, format func(K) string) {
	if m == nil {
		writeAll(w, "<nil>")
		return
	}
	writeAll(w, "map[")
	for i, key := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			writeAll(w, " ")
		}
		writeAll(w, format(key), ":")
		dumpList(w, m[key], func(id string) { writeAll(w, id) })
	}
	writeAll(w, "]")
}

// dumpList writes a list in brackets, and calls dump for each element.
func dumpList[E any](w dumper, list []E, dump func(E)) {
	if list == nil {
		writeAll(w, "<nil>")
		return
	}
	writeAll(w, "[")
	for i, element := range list {
		if i > 0 {
			writeAll(w, " ")
		}
		dump(element)
	}
	writeAll(w, "]")
}

func writeAll(w dumper, texts ...string) {
	for _, text := range texts {
		_, _ = w.WriteString(text)
	}
}
