// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/internal/record"
)

// maxRecord is the largest number of bytes of a record.
const maxRecord = 16 << 20

// recordFormat returns the format of the record file.
func recordFormat() record.Format {
	return record.Format{Magic: "nodeagent-cpus", Version: "1", Content: "CPUs"}
}

// recordDocument is the content of the record file.
type recordDocument struct {
	Shared topology.CPUSet `json:"shared"` // for Kubelet.RefuseChanged; the shared pool follows from the machine and the configuration
	Pods   []recordedPod   `json:"pods"`
}

type recordedPod struct {
	UID        string                     `json:"uid"`
	Containers map[string]topology.CPUSet `json:"containers"`
}

// encodeRecord returns the content of the record file with this state.
func encodeRecord(s *State) ([]byte, error) {
	d := recordDocument{Shared: s.Shared, Pods: []recordedPod{}}
	for _, uid := range slices.Sorted(maps.Keys(s.Assigned)) {
		d.Pods = append(d.Pods, recordedPod{UID: uid, Containers: s.Assigned[uid]})
	}
	doc, err := json.Marshal(&d)
	if err == nil {
		err = checkSize(doc, maxRecord)
	}
	if err != nil {
		return nil, err
	}
	return recordFormat().Encode(doc), nil
}

// decodeRecord returns the state in the content of a record file. A damaged record, and a pod that has no UID or occurs twice, is an
// error.
func decodeRecord(data []byte) (s State, err error) {
	doc, err := recordFormat().Decode(data)
	if err != nil {
		return s, err
	}
	if err := checkSize(doc, maxRecord); err != nil {
		return s, err
	}
	d := recordDocument{}
	if err := json.Unmarshal(doc, &d); err != nil {
		return s, err
	}
	s.Shared = d.Shared
	s.Assigned = make(map[string]map[string]topology.CPUSet, len(d.Pods))
	for _, pod := range d.Pods {
		if _, ok := s.Assigned[pod.UID]; ok || pod.UID == "" {
			return State{}, fmt.Errorf("pod %q has no UID or is recorded twice", pod.UID)
		}
		s.Assigned[pod.UID] = pod.Containers
	}
	return s, nil
}
