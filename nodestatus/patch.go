// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Patch returns the strategic merge patch of subresource status that makes one Node object another, as far as [Build], [Reconcile] and
// [ZeroExtendedResources] change one: labels, annotations, and the fields of status that a node agent owns. It has the UID of the
// old object, so that the API server refuses it for a Node that was made anew, which would get a part of its status. Addresses are
// replaced as a whole: the API has them merged by type, of which a node may have two that are the same.
func Patch(previous, built *corev1.Node) ([]byte, error) {
	patch, err := patchOf(previous, built)
	if err != nil {
		return nil, fmt.Errorf("patch node %s: %w", built.Name, err)
	}
	return patch, nil
}

func patchOf(previous, built *corev1.Node) ([]byte, error) {
	meta, status := object{}, object{}
	old, now := &previous.Status, &built.Status
	for _, field := range []struct {
		of       object
		name     string
		old, now any
	}{
		{meta, "labels", previous.Labels, built.Labels},
		{meta, "annotations", previous.Annotations, built.Annotations},
		{status, "capacity", old.Capacity, now.Capacity},
		{status, "allocatable", old.Allocatable, now.Allocatable},
		{status, "daemonEndpoints", old.DaemonEndpoints, now.DaemonEndpoints},
		{status, "nodeInfo", old.NodeInfo, now.NodeInfo},
		{status, "images", old.Images, now.Images},
		{status, "volumesInUse", old.VolumesInUse, now.VolumesInUse},
		{status, "runtimeHandlers", old.RuntimeHandlers, now.RuntimeHandlers},
		{status, "features", old.Features, now.Features},
		{status, "declaredFeatures", old.DeclaredFeatures, now.DeclaredFeatures},
	} {
		if err := field.of.diff(field.name, field.old, field.now); err != nil {
			return nil, fmt.Errorf("%s: %w", field.name, err)
		}
	}
	if changed := changedConditions(old.Conditions, now.Conditions); len(changed) > 0 {
		status["conditions"] = changed
		status["$setElementOrder/conditions"] = order(now.Conditions)
	}
	status.replaceAddresses(old.Addresses, now.Addresses)
	if previous.UID != "" {
		meta["uid"] = previous.UID
	}
	return json.Marshal(object{}.with("metadata", meta).with("status", status))
}

// object is one of JSON.
type object map[string]any

// with adds a part, unless it is empty.
func (o object) with(name string, part object) object {
	if len(part) > 0 {
		o[name] = part
	}
	return o
}

// diff adds what makes one value another: of objects what differs, and of all else the new value.
func (o object) diff(name string, old, now any) error {
	was, err := generic(old)
	if err != nil {
		return err
	}
	is, err := generic(now)
	if err != nil {
		return err
	}
	o.add(name, was, is)
	return nil
}

// add is diff for what JSON has.
func (o object) add(name string, was, is any) {
	if reflect.DeepEqual(was, is) {
		return
	}
	before, wasObject := was.(map[string]any)
	after, isObject := is.(map[string]any)
	if !wasObject || !isObject {
		o[name] = is // nil, which is null, removes it
		return
	}
	part := object{}
	for key := range before {
		if _, kept := after[key]; !kept {
			part[key] = nil
		}
	}
	for key, value := range after {
		part.add(key, before[key], value)
	}
	o[name] = part
}

// generic returns a value as JSON has it: what is empty and may be left out is nil.
func generic(v any) (out any, err error) {
	if value := reflect.ValueOf(v); value.Kind() != reflect.Struct && value.Kind() != reflect.Pointer && value.Len() == 0 {
		return nil, nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // sizes have more digits than a float64
	return out, decoder.Decode(&out)
}

// changedConditions returns conditions that are new or differ, a heartbeat counting. Merged by type, they need all of their fields.
func changedConditions(old, now []corev1.NodeCondition) (changed []object) {
	for _, c := range now {
		if at := lastOf(old, c.Type); at >= 0 && sameSent(&old[at], &c) {
			continue
		}
		changed = append(changed, object{
			"type": c.Type, "status": c.Status, "reason": c.Reason, "message": c.Message,
			"lastHeartbeatTime": c.LastHeartbeatTime, "lastTransitionTime": c.LastTransitionTime,
		})
	}
	return changed
}

// order returns the types of conditions. Without it, the API server has those that it keeps behind those that change.
func order(conditions []corev1.NodeCondition) (types []object) {
	for _, c := range conditions {
		types = append(types, object{"type": c.Type})
	}
	return types
}

// sameSent reports whether conditions are the same at the API server, which has times in seconds.
func sameSent(a, b *corev1.NodeCondition) bool {
	second := func(a, b metav1.Time) bool { return a.Unix() == b.Unix() && a.IsZero() == b.IsZero() }
	return a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message &&
		second(a.LastHeartbeatTime, b.LastHeartbeatTime) && second(a.LastTransitionTime, b.LastTransitionTime)
}

func (o object) replaceAddresses(old, now []corev1.NodeAddress) {
	if reflect.DeepEqual(old, now) || len(old) == 0 && len(now) == 0 {
		return
	}
	all := []any{}
	for _, address := range now {
		all = append(all, address)
	}
	o["addresses"] = append(all, object{"$patch": "replace"})
}
