// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package statuspatch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// object is a JSON object.
type object = map[string]any

// What a strategic merge patch says beside values. Source: k8s.io/apimachinery/pkg/util/strategicpatch.
const (
	directive       = "$patch"
	directiveDelete = "delete"
	orderPrefix     = "$setElementOrder/"
)

// mergeKey returns by what the items of a list of the status are told apart; empty: the list is replaced as a whole. Source: the tags of
// PodStatus in k8s.io/api/core/v1.
func mergeKey(field string) string {
	switch field {
	case "conditions":
		return "type"
	case "podIPs", "hostIPs":
		return "ip"
	}
	return ""
}

// Patch returns the strategic merge patch that makes one status another on the server, and nil if they are the same. It carries the UID,
// which the server compares. What is known of claims is nobody's to change here, and not in it. Source: PatchPodStatus in
// pkg/util/pod/pod.go.
func Patch(uid types.UID, server, status *corev1.PodStatus) ([]byte, error) {
	from, err := asObject(server)
	if err != nil {
		return nil, fmt.Errorf("patch of pod status: %w", err)
	}
	to, err := asObject(status)
	if err != nil {
		return nil, fmt.Errorf("patch of pod status: %w", err)
	}
	changes := difference(from, to, true)
	if len(changes) == 0 {
		return nil, nil
	}
	return json.Marshal(object{"metadata": object{"uid": uid}, "status": changes})
}

// asObject returns a status as JSON has it, without claims.
func asObject(status *corev1.PodStatus) (out object, err error) {
	own := *status
	own.ResourceClaimStatuses, own.NodeAllocatableResourceClaimStatuses, own.ExtendedResourceClaimStatus = nil, nil, nil
	text, err := json.Marshal(&own)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return out, d.Decode(&out)
}

// difference returns what makes one object another. Only the top of a status has lists that are merged.
func difference(from, to object, top bool) object {
	changes := object{}
	for name, value := range to {
		had, ok := from[name]
		if ok && reflect.DeepEqual(had, value) {
			continue
		}
		before, wasObject := had.(object)
		after, isObject := value.(object)
		key := ""
		if top {
			key = mergeKey(name)
		}
		switch {
		case wasObject && isObject:
			changes[name] = difference(before, after, false)
		case key != "":
			list, order := listDifference(had, value, key)
			if len(list) > 0 {
				changes[name] = list
			}
			changes[orderPrefix+name] = order
		default:
			changes[name] = value
		}
	}
	for name := range from {
		if _, ok := to[name]; !ok {
			changes[name] = nil
		}
	}
	return changes
}

// listDifference returns the items that make one list another, and the order that they are to have.
func listDifference(from, to any, key string) (changes, order []any) {
	had := map[any]object{}
	before, _ := from.([]any)
	for _, item := range before {
		o, _ := item.(object)
		had[o[key]] = o
	}
	wanted := map[any]bool{}
	for _, item := range to.([]any) {
		o, _ := item.(object)
		id := o[key]
		if wanted[id] {
			continue
		}
		wanted[id] = true
		order = append(order, object{key: id})
		was, ok := had[id]
		change := difference(was, o, false)
		switch {
		case !ok:
			changes = append(changes, o)
		case len(change) > 0:
			change[key] = id
			changes = append(changes, change)
		}
	}
	for _, item := range before {
		o, _ := item.(object)
		if id := o[key]; !wanted[id] {
			wanted[id] = true
			changes = append(changes, object{directive: directiveDelete, key: id})
		}
	}
	return changes, order
}
