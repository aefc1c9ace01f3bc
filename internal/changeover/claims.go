// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package changeover

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/volume"
)

// checkClaims records, for each pod that has not terminated, the volumes with a claim that the agent cannot set up. After a failed request it sends no
// further ones: all remaining pods with claims have this error.
func (r *reader) checkClaims(ctx context.Context) {
	if !r.config.InCluster() {
		return // the checks of the pod refuse claims
	}
	plugins := volumePlugins(true)
	claims, failed := r.options.Claims, error(nil)
	for i := range r.node.Pods {
		p := &r.node.Pods[i]
		if p.Pod == nil || !slices.ContainsFunc(p.Pod.Spec.Volumes, hasClaim) || p.Pod.Status.Phase == corev1.PodSucceeded || p.Pod.Status.Phase == corev1.PodFailed {
			continue
		}
		if claims == nil && failed == nil {
			var client *kubeapi.Client
			if client, failed = r.dialAPI(); failed == nil {
				defer client.CloseConnections() // of the only client
				claims = apiClaims{client}
			}
		}
		if failed == nil {
			p.Claims, failed = volume.CheckClaims(ctx, p.Pod, claims, plugins)
		}
		if failed != nil {
			p.Err = errors.Join(p.Err, failed)
		}
	}
	r.addUnread("claims", failed)
}

// hasClaim reports whether a volume has a claim.
func hasClaim(vol corev1.Volume) bool {
	return vol.PersistentVolumeClaim != nil || vol.Ephemeral != nil
}

// apiClaims reads claims and PVs from the API server.
type apiClaims struct{ client *kubeapi.Client }

func (c apiClaims) PersistentVolumeClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return getObject(ctx, kubeapi.In(c.client, kubeapi.PersistentVolumeClaims, namespace), name)
}

func (c apiClaims) PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	return getObject(ctx, kubeapi.In(c.client, kubeapi.PersistentVolumes, ""), name)
}

// getObject reads an object. The error for a missing object wraps [fs.ErrNotExist].
func getObject[T any](ctx context.Context, objects interface {
	Get(ctx context.Context, name string) (T, error)
}, name string,
) (T, error) {
	object, err := objects.Get(ctx, name)
	if apierrors.IsNotFound(err) {
		err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return object, err
}
