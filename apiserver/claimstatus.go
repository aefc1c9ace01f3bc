// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/internal/kubeapi"
)

// claimExpanded writes into the status of a claim that its volume has grown on this node, to a number of bytes: the end of what
// volume.Hooks.Expanded tells. A claim that is gone, or has another UID by now, is left alone, and an error that wraps [fs.ErrNotExist].
// Source: pkg/volume/util/resize_util.go.
func (b *Objects) reportClaimExpanded(ctx context.Context, claim *corev1.PersistentVolumeClaim, size int64) error {
	claims := kubeapi.In(b.client, kubeapi.PersistentVolumeClaims, claim.Namespace)
	return retryOnConflict(ctx, func() error {
		o, err := readObject(ctx, b.client, kubeapi.PersistentVolumeClaims, claim.Namespace, claim.Name)
		if err != nil {
			return err
		}
		if o.UID != claim.UID {
			return notFoundError{fmt.Errorf("claim %s/%s has UID %s, not %s: it was created anew", o.Namespace, o.Name, o.UID, claim.UID)}
		}
		patch, err := buildExpandedPatch(o, size)
		if patch == nil || err != nil {
			return err
		}
		_, err = claims.Patch(ctx, o.Name, types.MergePatchType, patch, "status")
		return err
	})
}

// expandedPatch returns what ends the expansion of a claim; nil: its status says so already.
func buildExpandedPatch(o *corev1.PersistentVolumeClaim, size int64) ([]byte, error) {
	status := map[string]any{}
	if q := resource.NewQuantity(size, resource.BinarySI); q.Cmp(o.Status.Capacity[corev1.ResourceStorage]) != 0 {
		status["capacity"] = map[string]any{"storage": q.String()}
	}
	if _, ok := o.Status.AllocatedResourceStatuses[corev1.ResourceStorage]; ok {
		status["allocatedResourceStatuses"] = map[string]any{"storage": nil}
	}
	conditions := slices.DeleteFunc(slices.Clone(o.Status.Conditions), isResizeCondition)
	if len(conditions) != len(o.Status.Conditions) {
		status["conditions"] = conditions
	}
	if len(status) == 0 {
		return nil, nil
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": o.UID, "resourceVersion": o.ResourceVersion}, "status": status})
}

// ofResize reports whether a condition is about an expansion that has not ended.
func isResizeCondition(c corev1.PersistentVolumeClaimCondition) bool {
	switch c.Type {
	case corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending,
		corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError:
		return true
	}
	return false
}
