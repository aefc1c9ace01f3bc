// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed81659283/nodeagent/internal/kubeapi"
)

// VolumeObjects has the config maps and secrets that volumes show. Each is watched, by its name, from its first read on until
// nothing has read it for 5 minutes or no pod refers to it; one that is immutable is read once. While the API server is away
// they are as they were.
type VolumeObjects struct{ objects *Objects }

// Volumes returns the objects that volumes show.
func (b *Objects) Volumes() VolumeObjects { return VolumeObjects{b} }

// ConfigMap returns a config map.
func (v VolumeObjects) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	o, err := readWatched(ctx, v.objects.configMaps, namespace, name)
	return v.objects.cacheOrLoadConfigMap(o, err, namespace, name)
}

// Secret returns a secret.
func (v VolumeObjects) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	o, err := readWatched(ctx, v.objects.secrets, namespace, name)
	return v.objects.cacheOrLoadSecret(o, err, namespace, name)
}

func readWatched[T kubeapi.Object](ctx context.Context, w *objectWatcher[T], namespace, name string) (T, error) {
	o, exists, err := w.getObject(ctx, namespace, name)
	switch {
	case err != nil:
		return o, fmt.Errorf("watch %s %s/%s: %w", w.kind.Resource(), namespace, name, markUnavailable(err))
	case !exists:
		return o, notFoundError{apierrors.NewNotFound(schema.GroupResource{Resource: w.kind.Resource()}, name)}
	}
	return o, nil
}

func isNotFound(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// Watch calls changed with kind, namespace and name of each config map, secret, CSI driver and cluster trust bundle that changes, until
// ctx ends. It is a volume.Watcher. Claims and persistent volumes are not watched: a node may only read them.
func (b *Objects) Watch(ctx context.Context, changed func(kind, namespace, name string)) error {
	return b.watchers.Watch(ctx, changed)
}

// PersistentVolumeClaim returns a claim of a pod of this node.
func (b *Objects) PersistentVolumeClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	ctx, cancel := b.withReadTimeout(ctx)
	defer cancel()
	o, err := readObject(ctx, b.client, kubeapi.PersistentVolumeClaims, namespace, name)
	return cacheOrLoad(b, kindClaim, namespace, name, o, err)
}

// PersistentVolume returns a volume that a claim of a pod of this node is bound to.
func (b *Objects) PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	ctx, cancel := b.withReadTimeout(ctx)
	defer cancel()
	o, err := readObject(ctx, b.client, kubeapi.PersistentVolumes, "", name)
	return cacheOrLoad(b, kindPV, "", name, o, err)
}

// VolumeAttachment returns what a controller says of a volume's attachment to this node.
func (b *Objects) VolumeAttachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error) {
	ctx, cancel := b.withReadTimeout(ctx)
	defer cancel()
	o, err := readObject(ctx, b.client, kubeapi.VolumeAttachments, "", name)
	return cacheOrLoad(b, kindAttachment, "", name, o, err)
}

// CSIDriver returns what the cluster says of a CSI driver.
func (b *Objects) CSIDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	if status := b.drivers.Status(); status.Synced.IsZero() && isUnavailable(status.Err) { // it is known to be away
		if o, err := cacheOrLoad[storagev1.CSIDriver](b, kindCSIDriver, "", name, nil, status.Err); err == nil {
			return o, nil
		}
	}
	timer := time.NewTimer(firstListWait)
	defer timer.Stop()
	select {
	case <-b.driversReady:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		status := b.drivers.Status()
		err := fmt.Errorf("CSI drivers: %w", notSyncedError(status))
		if status.Err == nil { // it is slow, and not away
			return nil, err
		}
		return cacheOrLoad[storagev1.CSIDriver](b, kindCSIDriver, "", name, nil, err)
	}
	o, ok := b.drivers.Get(name)
	if !ok {
		err := notFoundError{apierrors.NewNotFound(schema.GroupResource{Group: storagev1.GroupName, Resource: "csidrivers"}, name)}
		return cacheOrLoad[storagev1.CSIDriver](b, kindCSIDriver, "", name, nil, err)
	}
	return cacheOrLoad(b, kindCSIDriver, "", name, o, nil)
}
