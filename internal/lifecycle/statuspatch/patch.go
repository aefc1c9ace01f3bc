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

// Directives of a strategic merge patch. Source: k8s.io/apimachinery/pkg/util/strategicpatch.
const (
	directive       = "$patch"
	directiveDelete = "delete"
	orderPrefix     = "$setElementOrder/"
)

// mergeKey returns the key by which a patch merges the items of a list in the pod status, or "". Source: the tags of
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

// Patch returns the strategic merge patch that changes the status on the API server to status, nil if they are equal. It
// contains the pod UID, which the API server verifies, and omits the claim statuses of other clients. Source: PatchPodStatus
// in pkg/util/pod/pod.go.
func Patch(uid types.UID, server, status *corev1.PodStatus) ([]byte, error) {
	from, err := encodeStatus(server)
	if err != nil {
		return nil, fmt.Errorf("encode pod status: %w", err)
	}
	to, err := encodeStatus(status)
	if err != nil {
		return nil, fmt.Errorf("encode pod status: %w", err)
	}
	changes := diffObjects(from, to, true)
	if len(changes) == 0 {
		return nil, nil
	}
	return json.Marshal(object{"metadata": object{"uid": uid}, "status": changes})
}

// encodeStatus returns status as a JSON object, without the claim statuses.
func encodeStatus(status *corev1.PodStatus) (out object, err error) {
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

// diffObjects returns the patch from one object to another. In pod statuses it merges the items of lists by key.
func diffObjects(current, target object, isStatus bool) object {
	changes := object{}
	for name, value := range target {
		had, ok := current[name]
		if ok && reflect.DeepEqual(had, value) {
			continue
		}
		before, wasObject := had.(object)
		after, isObject := value.(object)
		key := ""
		if isStatus {
			key = mergeKey(name)
		}
		switch {
		case wasObject && isObject:
			changes[name] = diffObjects(before, after, false)
		case key != "":
			list, order := diffLists(had, value, key)
			if len(list) > 0 {
				changes[name] = list
			}
			changes[orderPrefix+name] = order
		default:
			changes[name] = value
		}
	}
	for name := range current {
		if _, ok := target[name]; !ok {
			changes[name] = nil
		}
	}
	return changes
}

// diffLists returns the changed items, and the keys of all target items, of a list whose items are merged by key.
func diffLists(current, target any, key string) (changes, order []any) {
	had := map[any]object{}
	before, _ := current.([]any)
	for _, item := range before {
		o, _ := item.(object)
		had[o[key]] = o
	}
	wanted := map[any]bool{}
	for _, item := range target.([]any) {
		o, _ := item.(object)
		id := o[key]
		if wanted[id] {
			continue
		}
		wanted[id] = true
		order = append(order, object{key: id})
		previous, ok := had[id]
		change := diffObjects(previous, o, false)
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
