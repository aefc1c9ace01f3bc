// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/internal/kubechecksum"
)

// CheckpointName is the name of the kubelet's file with the CPUs of containers, in its root directory.
const CheckpointName = "cpu_manager_state"

// maxCheckpoint is the largest number of bytes that DecodeCheckpoint decodes.
const maxCheckpoint = 16 << 20

// maxQuotes is the largest number of quotation marks in a checkpoint or a record. An empty text of two bytes needs a hundred times the memory when it is
// decoded. 1,000 containers need 8,000 in the largest version of a checkpoint.
const maxQuotes = 1 << 18

// checkSize returns an error if the content of a file has too many bytes or texts.
func checkSize(content []byte, maxBytes int) error {
	if len(content) > maxBytes {
		return fmt.Errorf("it has %d bytes, more than %d", len(content), maxBytes)
	}
	if quotes := bytes.Count(content, []byte{'"'}); quotes > maxQuotes {
		return fmt.Errorf("it has %d quotation marks, more than %d", quotes, maxQuotes)
	}
	return nil
}

// checkpointData is the content of a checkpoint. The names of the JSON fields are those of the kubelet's struct CPUManagerCheckpointData.
type checkpointData struct {
	PolicyName    string                              `json:"policyName"`
	DefaultCPUSet string                              `json:"defaultCpuSet"`
	Entries       map[string]map[string]string        `json:"entries,omitempty"`
	PodEntries    map[string]podEntry                 `json:"podEntries,omitempty"`
	Baselines     map[string]map[string]baselineEntry `json:"baselines,omitempty"`
}

// podEntry has the CPUs of a pod with pod-level resources.
type podEntry struct{ set topology.CPUSet }

// podEntryJSON is the form of a podEntry in the file.
type podEntryJSON struct {
	CPUSet string `json:"cpuSet,omitempty"`
}

// MarshalJSON encodes the entry.
func (e podEntry) MarshalJSON() ([]byte, error) {
	return json.Marshal(podEntryJSON{CPUSet: e.set.String()})
}

// UnmarshalJSON decodes the entry, and parses its CPUs.
func (e *podEntry) UnmarshalJSON(data []byte) error {
	var entry podEntryJSON
	if err := json.Unmarshal(data, &entry); err != nil {
		return err
	}
	set, err := parseSet(entry.CPUSet)
	if err != nil {
		return fmt.Errorf("failed to parse cpuset: %w", err)
	}
	e.set = set
	return nil
}

// baselineEntry has the CPUs of a container before its in-place resizes. It is decoded for its errors only.
type baselineEntry struct {
	Baseline string `json:"baseline"`
}

// EncodeCheckpoint returns the content of cpu_manager_state with which a kubelet of this policy continues. One content has the fields of version 4 of
// the file and those of version 2, which kubelets before 1.36 read. Source: pkg/kubelet/cm/cpumanager/state/checkpoint.go.
func EncodeCheckpoint(policy string, s State) ([]byte, error) {
	d := checkpointData{PolicyName: policy, DefaultCPUSet: s.Shared.String(), Entries: map[string]map[string]string{}, PodEntries: map[string]podEntry{}}
	if policy == PolicyNone {
		d.DefaultCPUSet = ""
	}
	for uid, containers := range s.Assigned {
		texts := make(map[string]string, len(containers))
		for container, set := range containers {
			switch {
			case set.IsEmpty():
			case container == WholePod:
				d.PodEntries[uid] = podEntry{set: set}
			default:
				texts[container] = set.String()
			}
		}
		if len(texts) > 0 {
			d.Entries[uid] = texts
		}
	}
	data, err := json.Marshal(&d)
	if err != nil {
		return nil, err
	}
	return json.Marshal(&struct {
		PolicyName    string                       `json:"policyName"`
		DefaultCPUSet string                       `json:"defaultCpuSet"`
		Entries       map[string]map[string]string `json:"entries,omitempty"`
		Checksum      uint64                       `json:"checksum"`
		Data          string                       `json:"data"`
		DataChecksum  uint64                       `json:"dataChecksum"`
	}{policy, d.DefaultCPUSet, d.Entries, d.checksum("CPUManagerCheckpoint", false), string(data), sumText(string(data))})
}

// DecodeCheckpoint returns the policy and the state in the content of a kubelet's cpu_manager_state of version 2, 3 or 4. An error has the text of a
// kubelet that does not start because of the file. The CPUs before in-place resizes are ignored: containers keep their CPUs. DecodeCheckpoint returns an
// error for content of more than 16 MiB or 262,144 quotation marks, and for a list of more than 4,096 CPUs. Source: pkg/kubelet/cm/cpumanager/state/state_checkpoint.go.
func DecodeCheckpoint(content []byte) (policy string, s State, err error) {
	d, err := decodeVersions(content)
	if err == nil {
		s, err = d.parseState()
	}
	if err != nil {
		return "", State{}, err
	}
	return d.PolicyName, s, nil
}

// parseState returns the state of a checkpoint.
func (d *checkpointData) parseState() (s State, err error) {
	if s.Shared, err = parseSet(d.DefaultCPUSet); err != nil {
		return State{}, fmt.Errorf("could not parse default CPU set %q: %w", d.DefaultCPUSet, err)
	}
	s.Assigned = make(map[string]map[string]topology.CPUSet, len(d.Entries))
	for _, uid := range slices.Sorted(maps.Keys(d.Entries)) {
		containers := make(map[string]topology.CPUSet, len(d.Entries[uid]))
		for _, container := range slices.Sorted(maps.Keys(d.Entries[uid])) {
			text := d.Entries[uid][container]
			if container == WholePod { // the CPUs of a pod are in PodEntries
				return State{}, fmt.Errorf("pod %q has a container without name", uid)
			}
			if containers[container], err = parseSet(text); err != nil {
				return State{}, fmt.Errorf("could not parse cpuset %q for container %q in pod %q: %w", text, container, uid, err)
			}
		}
		s.Assigned[uid] = containers
	}
	for uid, entry := range d.PodEntries {
		if s.Assigned[uid] == nil {
			s.Assigned[uid] = map[string]topology.CPUSet{}
		}
		s.Assigned[uid][WholePod] = entry.set
	}
	return s, nil
}

// errCorrupt is the kubelet's error for a wrong checksum.
var errCorrupt = errors.New("checkpoint is corrupted")

// decodeVersions decodes a checkpoint. It tries version 4, then 3 and 2; a damaged file of version 4 is an error.
func decodeVersions(content []byte) (checkpointData, error) {
	if err := checkSize(content, maxCheckpoint); err != nil {
		return checkpointData{}, err
	}
	d, isVersion4, err := decodeVersion4(content)
	if err == nil {
		return d, nil
	}
	if isVersion4 {
		return d, fmt.Errorf("could not load v4 checkpoint: %w", err)
	}
	if d, err = decodeVersion3(content); err == nil {
		return d, nil
	}
	return decodeVersion2(content)
}

// decodeVersion4 decodes a file of version 4: its field data is the text of a JSON document. The types have the kubelet's names, because errors of JSON
// contain them.
func decodeVersion4(content []byte) (d checkpointData, isVersion4 bool, err error) {
	type CPUManagerCheckpointV2 struct {
		PolicyName    string                       `json:"policyName"`
		DefaultCPUSet string                       `json:"defaultCpuSet"`
		Entries       map[string]map[string]string `json:"entries,omitempty"`
		Checksum      uint64                       `json:"checksum"`
	}
	type CPUManagerCheckpoint struct {
		CPUManagerCheckpointV2
		Data         string `json:"data"`
		DataChecksum uint64 `json:"dataChecksum"`
	}
	type CPUManagerCheckpointData checkpointData
	var file CPUManagerCheckpoint
	if err = json.Unmarshal(content, &file); err != nil {
		err = fmt.Errorf("failed to deserialize cpu manager checkpoint: %w", err)
		return d, file.Data != "" || file.DataChecksum != 0, err
	}
	isVersion4 = file.Data != "" || file.DataChecksum != 0
	var data CPUManagerCheckpointData
	if err = json.Unmarshal([]byte(file.Data), &data); err != nil {
		return d, isVersion4, fmt.Errorf("failed to deserialize cpu manager checkpoint data: %w", err)
	}
	if sumText(file.Data) != file.DataChecksum {
		return d, isVersion4, errCorrupt
	}
	return checkpointData(data), true, nil
}

// decodeVersion3 decodes a file of version 3, which has the CPUs of pods with pod-level resources.
func decodeVersion3(content []byte) (d checkpointData, err error) {
	type CPUManagerCheckpointV3 struct {
		PolicyName    string                       `json:"policyName"`
		DefaultCPUSet string                       `json:"defaultCpuSet"`
		Entries       map[string]map[string]string `json:"entries,omitempty"`
		PodEntries    map[string]podEntry          `json:"podEntries,omitempty"`
		Checksum      uint64                       `json:"checksum"`
	}
	file := CPUManagerCheckpointV3{Entries: map[string]map[string]string{}, PodEntries: map[string]podEntry{}}
	if err := json.Unmarshal(content, &file); err != nil {
		return d, err
	}
	d = checkpointData{PolicyName: file.PolicyName, DefaultCPUSet: file.DefaultCPUSet, Entries: file.Entries, PodEntries: file.PodEntries}
	if file.Checksum != d.checksum("CPUManagerCheckpointV3", true) && file.Checksum != d.checksum("CPUManagerCheckpoint", true) {
		return d, errCorrupt
	}
	return d, nil
}

// decodeVersion2 decodes a file of version 2. A checksum of zero is accepted.
func decodeVersion2(content []byte) (d checkpointData, err error) {
	type CPUManagerCheckpointV2 struct {
		PolicyName    string                       `json:"policyName"`
		DefaultCPUSet string                       `json:"defaultCpuSet"`
		Entries       map[string]map[string]string `json:"entries,omitempty"`
		Checksum      uint64                       `json:"checksum"`
	}
	file := CPUManagerCheckpointV2{Entries: map[string]map[string]string{}}
	if err := json.Unmarshal(content, &file); err != nil {
		return d, err
	}
	d = checkpointData{PolicyName: file.PolicyName, DefaultCPUSet: file.DefaultCPUSet, Entries: file.Entries}
	if sum := file.Checksum; sum != 0 && sum != d.checksum("CPUManagerCheckpointV2", false) && sum != d.checksum("CPUManagerCheckpoint", false) {
		return d, errCorrupt
	}
	return d, nil
}

// checksum returns the kubelet's checksum of a checkpoint of this type name, with PodEntries in version 3.
func (d *checkpointData) checksum(typeName string, withPods bool) uint64 {
	text := func(t string) string { return t }
	h := kubechecksum.New()
	h.Write("(*state.", typeName, "){PolicyName:(string)", d.PolicyName, " DefaultCPUSet:(string)", d.DefaultCPUSet, " Entries:(map[string]map[string]string)")
	kubechecksum.WriteMap(h, d.Entries, text, func(containers map[string]string) {
		kubechecksum.WriteMap(h, containers, text, func(set string) { h.Write(set) })
	})
	if withPods {
		h.Write(" PodEntries:(state.PodCPUAssignments)")
		kubechecksum.WriteMap(h, d.PodEntries, text, func(e podEntry) { e.hash(h) })
	}
	h.Write(" Checksum:(checksum.Checksum)0}")
	return h.Sum()
}

// hash adds the entry to the dump: the kubelet's CPUSet is a map.
func (e podEntry) hash(h *kubechecksum.Hash) {
	h.Write("{CPUSet:(cpuset.CPUSet){elems:(map[int]struct {})map[")
	separator := ""
	for id := range e.set.All() {
		h.Write(separator, strconv.Itoa(id), ":{}")
		separator = " "
	}
	h.Write("]}}")
}

// sumText returns the kubelet's checksum of a text.
func sumText(text string) uint64 {
	h := kubechecksum.New()
	h.Write("(string)", text)
	return h.Sum()
}

// maxListed is the largest number of CPUs in a list, which may have a CPU more than once: a long list would otherwise take minutes.
const maxListed = 2 * topology.MaxCPUs

// parseSet parses a list of CPUs as k8s.io/utils/cpuset does, with the same errors. An ID from [topology.MaxCPUs] on is an error in addition.
func parseSet(text string) (set topology.CPUSet, err error) {
	if text == "" {
		return set, nil
	}
	listed := 0
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		if err != nil {
			return topology.CPUSet{}, err
		}
		last := first
		if isRange {
			if last, err = strconv.Atoi(to); err != nil {
				return topology.CPUSet{}, err
			}
		}
		if first > last {
			return topology.CPUSet{}, fmt.Errorf("invalid range %q (%d > %d)", part, first, last)
		}
		if last >= topology.MaxCPUs {
			return topology.CPUSet{}, fmt.Errorf("CPU %d is not below %d", last, topology.MaxCPUs)
		}
		if listed += last - first + 1; listed > maxListed {
			return topology.CPUSet{}, fmt.Errorf("CPUs are listed several times: the list has more than %d", maxListed)
		}
		for id := first; id <= last; id++ {
			set.Add(id)
		}
	}
	return set, nil
}
