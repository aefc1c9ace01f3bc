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

// reportClaimExpanded sets the capacity in the claim's status after the node has expanded its file system. Source:
// pkg/volume/util/resize_util.go.
func (b *Objects) reportClaimExpanded(ctx context.Context, claim *corev1.PersistentVolumeClaim, size int64) error {
	claims := kubeapi.In(b.client, kubeapi.PersistentVolumeClaims, claim.Namespace)
	return retryOnConflict(ctx, func() error {
		o, err := readObject(ctx, b.client, kubeapi.PersistentVolumeClaims, claim.Namespace, claim.Name)
		if err != nil {
			return err
		}
		if o.UID != claim.UID {
			return notFoundError{fmt.Errorf("claim %s/%s has UID %s, not %s: it was recreated", o.Namespace, o.Name, o.UID, claim.UID)} // wraps fs.ErrNotExist
		}
		patch, err := buildExpandedPatch(o, size)
		if patch == nil || err != nil {
			return err
		}
		_, err = claims.Patch(ctx, o.Name, types.MergePatchType, patch, "status")
		return err
	})
}

// buildExpandedPatch returns the merge patch that sets the capacity in bytes and removes the resize conditions, or nil if
// nothing changes.
func buildExpandedPatch(claim *corev1.PersistentVolumeClaim, size int64) ([]byte, error) {
	status := map[string]any{}
	if q := resource.NewQuantity(size, resource.BinarySI); q.Cmp(claim.Status.Capacity[corev1.ResourceStorage]) != 0 {
		status["capacity"] = map[string]any{"storage": q.String()}
	}
	if _, ok := claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]; ok {
		status["allocatedResourceStatuses"] = map[string]any{"storage": nil}
	}
	conditions := slices.DeleteFunc(slices.Clone(claim.Status.Conditions), isResizeCondition)
	if len(conditions) != len(claim.Status.Conditions) {
		status["conditions"] = conditions
	}
	if len(status) == 0 {
		return nil, nil
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": claim.UID, "resourceVersion": claim.ResourceVersion}, "status": status})
}

// isResizeCondition reports whether a claim condition is about an unfinished or failed expansion.
func isResizeCondition(condition corev1.PersistentVolumeClaimCondition) bool {
	switch condition.Type {
	case corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending,
		corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError:
		return true
	}
	return false
}
