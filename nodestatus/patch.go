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

// Patch returns a strategic merge patch for the subresource status of a Node, which changes previous into built. It contains the
// changed labels, annotations and status fields that a node agent owns, and the UID, so that the API server rejects it if the
// Node was recreated.
//
// The patch replaces the whole list of addresses: a merge by type would lose the second address of a type.
func Patch(previous, built *corev1.Node) ([]byte, error) {
	patch, err := buildPatch(previous, built)
	if err != nil {
		return nil, fmt.Errorf("patch node %s: %w", built.Name, err)
	}
	return patch, nil
}

func buildPatch(previous, built *corev1.Node) ([]byte, error) {
	meta, status := jsonObject{}, jsonObject{}
	old, now := &previous.Status, &built.Status
	for _, field := range []struct {
		of       jsonObject
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
		if err := field.of.addDiff(field.name, field.old, field.now); err != nil {
			return nil, fmt.Errorf("%s: %w", field.name, err)
		}
	}
	if changed := changedConditions(old.Conditions, now.Conditions); len(changed) > 0 {
		status["conditions"] = changed
		status["$setElementOrder/conditions"] = elementOrder(now.Conditions)
	}
	status.replaceAddresses(old.Addresses, now.Addresses)
	if previous.UID != "" {
		meta["uid"] = previous.UID
	}
	return json.Marshal(jsonObject{}.addPart("metadata", meta).addPart("status", status))
}

// jsonObject is a JSON object of a strategic merge patch.
type jsonObject map[string]any

// addPart adds the object part to o as a field with this name, unless part is empty. It returns o.
func (o jsonObject) addPart(name string, part jsonObject) jsonObject {
	if len(part) > 0 {
		o[name] = part
	}
	return o
}

// addDiff adds a field with the difference between two values to o: the changed fields of an object, or else the new value.
func (o jsonObject) addDiff(name string, oldValue, newValue any) error {
	was, err := toJSONValue(oldValue)
	if err != nil {
		return err
	}
	is, err := toJSONValue(newValue)
	if err != nil {
		return err
	}
	o.addJSONDiff(name, was, is)
	return nil
}

// addJSONDiff adds a field with the difference between two decoded JSON values to o. Equal values add nothing.
func (o jsonObject) addJSONDiff(name string, oldValue, newValue any) {
	if reflect.DeepEqual(oldValue, newValue) {
		return
	}
	before, wasObject := oldValue.(map[string]any)
	after, isObject := newValue.(map[string]any)
	if !wasObject || !isObject {
		o[name] = newValue // nil becomes null, which removes the field
		return
	}
	part := jsonObject{}
	for key := range before {
		if _, kept := after[key]; !kept {
			part[key] = nil // null removes the field
		}
	}
	for key, value := range after {
		part.addJSONDiff(key, before[key], value)
	}
	o[name] = part
}

// toJSONValue encodes v as JSON and returns the decoded result. An empty list or map becomes nil.
func toJSONValue(v any) (out any, err error) {
	if value := reflect.ValueOf(v); value.Kind() != reflect.Struct && value.Kind() != reflect.Pointer && value.Len() == 0 {
		return nil, nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // a float64 cannot represent all sizes
	return out, decoder.Decode(&out)
}

// changedConditions returns the conditions that are new or changed, including their heartbeat time, with all fields.
func changedConditions(old, now []corev1.NodeCondition) (changed []jsonObject) {
	for _, c := range now {
		if at := lastConditionIndex(old, c.Type); at >= 0 && isSameOnServer(&old[at], &c) {
			continue // the API server merges conditions by type, and keeps this one
		}
		changed = append(changed, jsonObject{
			"type": c.Type, "status": c.Status, "reason": c.Reason, "message": c.Message,
			"lastHeartbeatTime": c.LastHeartbeatTime, "lastTransitionTime": c.LastTransitionTime,
		})
	}
	return changed
}

// elementOrder returns the types of these conditions, for the patch field $setElementOrder. Without this field, the API
// server would move unchanged conditions to the end.
func elementOrder(conditions []corev1.NodeCondition) (types []jsonObject) {
	for _, c := range conditions {
		types = append(types, jsonObject{"type": c.Type})
	}
	return types
}

// isSameOnServer reports whether two conditions are equal after times are rounded down to seconds. The API server stores
// times in seconds.
func isSameOnServer(a, b *corev1.NodeCondition) bool {
	second := func(a, b metav1.Time) bool { return a.Unix() == b.Unix() && a.IsZero() == b.IsZero() }
	return a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message &&
		second(a.LastHeartbeatTime, b.LastHeartbeatTime) && second(a.LastTransitionTime, b.LastTransitionTime)
}

func (o jsonObject) replaceAddresses(old, now []corev1.NodeAddress) {
	if reflect.DeepEqual(old, now) || len(old) == 0 && len(now) == 0 {
		return
	}
	all := []any{}
	for _, address := range now {
		all = append(all, address)
	}
	o["addresses"] = append(all, jsonObject{"$patch": "replace"})
}
