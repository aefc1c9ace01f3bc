// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// patchObject applies the strategic merge patch, merge patch or JSON patch of a PATCH request to the stored object.
func (c *call) patchObject() (Object, error) {
	return c.editStored(func(before Object) (Object, error) {
		original, err := marshalObject(c.kind.fromStored(before))
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		patched, err := c.applyPatch(original)
		if err != nil {
			return nil, err
		}
		obj := c.kind.newObject()
		if err := json.Unmarshal(patched, obj); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("apply patch to %s: %s", c.name, err))
		}
		if obj.GetName() != c.name || obj.GetNamespace() != c.namespace {
			return nil, c.invalidError(c.name, "metadata.name", "field is immutable")
		}
		return c.prepareUpdate(before, c.kind.toStored(obj))
	})
}

// applyPatch applies the patch of the request to a JSON document, and returns the resulting document.
func (c *call) applyPatch(original []byte) ([]byte, error) {
	return c.applyPatchTo(original, c.kind.newObject())
}

// applyPatchTo applies the patch of the request to a JSON document.
func (c *call) applyPatchTo(original []byte, document any) ([]byte, error) {
	var patched []byte
	var err error
	name := mediaType(c.r.Header.Get("Content-Type"))
	accepted := []string{string(types.JSONPatchType), string(types.MergePatchType), string(types.StrategicMergePatchType)}
	if c.kind.typ == nil {
		// as in a real API server, custom resources have no strategic merge patch
		accepted = accepted[:2]
	}
	if !slices.Contains(accepted, name) {
		return nil, c.unsupportedMediaType(accepted...)
	}
	switch types.PatchType(name) {
	case types.StrategicMergePatchType:
		patched, err = strategicpatch.StrategicMergePatch(original, c.body, document) // the Go type of document has the merge keys of its lists
	case types.MergePatchType:
		patched, err = applyMergePatch(original, c.body)
	default:
		patched, err = applyJSONPatch(original, c.body)
	}
	if err != nil {
		return nil, apierrors.NewGenericServerResponse(422, c.verb, c.kind.groupResource(), c.name, "apply patch: "+err.Error(), 0, true)
	}
	return patched, nil
}

// applyMergePatch applies a merge patch (RFC 7386) to a JSON document, and returns the resulting document.
func applyMergePatch(original, patch []byte) ([]byte, error) {
	var o, p any
	if err := utiljson.Unmarshal(original, &o); err != nil { // which keeps 64-bit integers
		return nil, err
	}
	if err := utiljson.Unmarshal(patch, &p); err != nil {
		return nil, err
	}
	return json.Marshal(mergeValues(o, p))
}

func mergeValues(original, patch any) any {
	fields, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	target, ok := original.(map[string]any)
	if !ok {
		target = map[string]any{}
	}
	for name, value := range fields {
		if value == nil {
			delete(target, name)
		} else {
			target[name] = mergeValues(target[name], value)
		}
	}
	return target
}
