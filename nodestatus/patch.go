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

// Patch returns the strategic merge patch that changes previous into built, for the subresource status of a Node. It contains the
// changed labels, annotations and status fields that a node agent owns. It contains the UID of previous: if the Node was
// recreated, the API server rejects the patch.
//
// The patch replaces all addresses together. The API server would merge them by type, and lose the second address of a type.
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

// addPart adds part to o as the field called name, unless part is empty. It returns o.
func (o jsonObject) addPart(name string, part jsonObject) jsonObject {
	if len(part) > 0 {
		o[name] = part
	}
	return o
}

// addDiff adds a field called name to o, with the difference between old and now: for an object its changed fields, otherwise the
// value now. It adds nothing if they are equal.
func (o jsonObject) addDiff(name string, old, now any) error {
	was, err := toJSONValue(old)
	if err != nil {
		return err
	}
	is, err := toJSONValue(now)
	if err != nil {
		return err
	}
	o.addJSONDiff(name, was, is)
	return nil
}

// addJSONDiff adds a field called name to o, with the difference between two decoded JSON values. For objects the difference has
// the changed fields, and null for each removed field. It adds nothing if the values are equal.
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
			part[key] = nil
		}
	}
	for key, value := range after {
		part.addJSONDiff(key, before[key], value)
	}
	o[name] = part
}

// toJSONValue encodes v as JSON and returns the decoded result. For an empty list or map it returns nil.
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

// changedConditions returns each new or changed condition in now, with all its fields. The API server merges conditions by type,
// so unchanged conditions can be omitted. A new heartbeat time is a change.
func changedConditions(old, now []corev1.NodeCondition) (changed []jsonObject) {
	for _, c := range now {
		if at := lastConditionIndex(old, c.Type); at >= 0 && isSameOnServer(&old[at], &c) {
			continue
		}
		changed = append(changed, jsonObject{
			"type": c.Type, "status": c.Status, "reason": c.Reason, "message": c.Message,
			"lastHeartbeatTime": c.LastHeartbeatTime, "lastTransitionTime": c.LastTransitionTime,
		})
	}
	return changed
}

// elementOrder returns the types of conditions in their order, for the patch field $setElementOrder. Without this field, the API
// server would move unchanged conditions to the end.
func elementOrder(conditions []corev1.NodeCondition) (types []jsonObject) {
	for _, c := range conditions {
		types = append(types, jsonObject{"type": c.Type})
	}
	return types
}

// isSameOnServer reports whether a and b are equal if times are rounded down to seconds, as the API server stores them.
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
