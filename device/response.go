// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/seed81659283/nodeagent/cri"
)

// AnnotationDevices is the annotation of a container that holds devices: a JSON object with the device IDs by resource. An agent that has lost its
// record reads this annotation.
const AnnotationDevices = "nodeagent/devices"

// maxNote limits the annotation [AnnotationDevices], in bytes. A container with a longer list has no annotation: its devices are only in the record.
const maxNote = 64 << 10

// maxResponse limits what the plugins of one container may add to its config, in entries.
const maxResponse = 1 << 12

// maxResponseSize limits one response in the record, in bytes, so that no plugin uses up the space of other pods.
const maxResponseSize = 128 << 10

// checkSize returns an error for a response that is too large for the record.
func (r *Response) checkSize(resource string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("response of Allocate of resource %s: %w", resource, err)
	}
	if len(text) > maxResponseSize {
		return fmt.Errorf("response of Allocate of resource %s takes %d bytes, more than %d", resource, len(text), maxResponseSize)
	}
	return nil
}

// merger merges the Allocate responses of all plugins of one container. If two responses have a value for the same name, the
// merger keeps the first value.
type merger struct {
	merged Response
	from   map[string]string // the resource of each name, such as "environment variable A"
	values map[string]any
	err    error // about the first name with two values
}

// addValue records a value for a kind and a name, such as "environment variable" and "PATH", from the plugin of the resource.
// It returns false if the name already has a value. If the two values differ, it also sets m.err.
func (m *merger) addValue(resource, kind, name string, value any) bool {
	key := kind + " " + name
	before, ok := m.values[key]
	if !ok {
		m.values[key], m.from[key] = value, resource
		return true
	}
	if m.err == nil && !reflect.DeepEqual(before, value) {
		m.err = fmt.Errorf("the plugins of resources %s and %s contradict each other: %.128s is %.64v and %.64v", m.from[key], resource, key, before, value)
	}
	return false
}

// addResponse adds the environment variables, annotations, mounts and devices in r, a plugin's Allocate response, to m.merged.
// It skips a name that already has a value. resource is the name of the plugin's resource.
func (m *merger) addResponse(resource string, r *Response) {
	for _, name := range slices.Sorted(maps.Keys(r.Env)) {
		if m.addValue(resource, "environment variable", name, r.Env[name]) {
			m.merged.Env[name] = r.Env[name]
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Annotations)) {
		if m.addValue(resource, "annotation", name, r.Annotations[name]) {
			m.merged.Annotations[name] = r.Annotations[name]
		}
	}
	for _, mount := range r.Mounts {
		if m.addValue(resource, "mount", mount.ContainerPath, mount.HostPath) {
			m.merged.Mounts = append(m.merged.Mounts, mount)
		}
	}
	for _, d := range r.Devices {
		if m.addValue(resource, "device node", d.ContainerPath, d) {
			m.merged.Devices = append(m.merged.Devices, d)
		}
	}
	for _, name := range r.CDIDevices {
		if m.addValue(resource, "CDI device", name, nil) {
			m.merged.CDIDevices = append(m.merged.CDIDevices, name)
		}
	}
}

// mergeResponses merges the responses of one container. claims are indexes in h.claims, ordered by resource. Two different values of one name are an
// error, unless firstWins is true, as in the kubelet. Source: deviceRunContainerOptions in pkg/kubelet/cm/devicemanager/pod_devices.go.
func mergeResponses(h *holding, claims []int, firstWins bool) (Response, error) {
	m := merger{merged: Response{Env: map[string]string{}, Annotations: map[string]string{}}, from: map[string]string{}, values: map[string]any{}}
	for _, at := range claims {
		m.addResponse(h.claims[at].resource, h.claims[at].response)
	}
	if m.err != nil && !firstWins {
		return Response{}, m.err
	}
	if len(m.values) > maxResponse {
		return Response{}, fmt.Errorf("the plugins of container %s add %d entries to its config, more than %d", h.pod.Containers[h.claims[claims[0]].container].Name, len(m.values), maxResponse)
	}
	return m.merged, nil
}

// checkConflicts returns an error if two plugins give one container different values for one name, such as an environment variable.
func (a *Allocator) checkConflicts(h *holding) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := 0; i < len(h.claims); {
		var claims []int
		for container := h.claims[i].container; i < len(h.claims) && h.claims[i].container == container; i++ {
			claims = append(claims, i)
		}
		if _, err := mergeResponses(h, claims, a.opts.Kubelet.IgnoreConflicts); err != nil {
			return err
		}
	}
	return nil
}

// addNote adds the annotation [AnnotationDevices] with the device IDs of the claims, which are indexes in h.claims. If the
// annotation would exceed maxNote bytes, addNote does nothing.
func (r *Response) addNote(h *holding, claims []int) {
	ids := map[string][]string{}
	for _, at := range claims {
		ids[h.claims[at].resource] = h.claims[at].ids()
	}
	note, err := json.Marshal(ids)
	if err == nil && len(note) <= maxNote {
		r.Annotations[AnnotationDevices] = string(note)
	}
}

// parseNote returns the IDs by resource in the annotation [AnnotationDevices].
func parseNote(note string) (ids map[string][]string, err error) {
	if len(note) > maxNote {
		return nil, fmt.Errorf("annotation %s has %d bytes, more than %d", AnnotationDevices, len(note), maxNote)
	}
	if err := json.Unmarshal([]byte(note), &ids); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", AnnotationDevices, err)
	}
	return ids, nil
}

// EnvVars returns the environment variables in the order of their names.
func (r *Response) EnvVars() (vars []cri.EnvVar) {
	for _, name := range slices.Sorted(maps.Keys(r.Env)) {
		vars = append(vars, cri.EnvVar{Name: name, Value: r.Env[name]})
	}
	return vars
}
