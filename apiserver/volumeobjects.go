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

// VolumeObjects returns the config maps and secrets that volumes contain. Each object is watched by name from its first read
// until it was not read for 5 minutes or no pod refers to it. An immutable object is read once. While the API server is
// unavailable, it returns the last known object.
type VolumeObjects struct{ objects *Objects }

// Volumes returns a reader of config maps and secrets for package volume.
func (b *Objects) Volumes() VolumeObjects { return VolumeObjects{b} }

// ConfigMap returns a watched config map, or its cached copy in [ObjectsOptions].CacheDir while the API server is unavailable.
// The error wraps [fs.ErrNotExist] if the config map does not exist.
func (v VolumeObjects) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	o, err := readWatched(ctx, v.objects.configMaps, namespace, name)
	return v.objects.cacheOrLoadConfigMap(o, err, namespace, name)
}

// Secret returns a watched secret, or its cached copy in [ObjectsOptions].CacheDir while the API server is unavailable. The error
// wraps [fs.ErrNotExist] if the secret does not exist.
func (v VolumeObjects) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	o, err := readWatched(ctx, v.objects.secrets, namespace, name)
	return v.objects.cacheOrLoadSecret(o, err, namespace, name)
}

// readWatched returns an object from its watch. The error wraps [fs.ErrNotExist] if the object does not exist.
func readWatched[T kubeapi.Object](ctx context.Context, watcher *objectWatcher[T], namespace, name string) (T, error) {
	o, exists, err := watcher.getObject(ctx, namespace, name)
	switch {
	case err != nil:
		return o, fmt.Errorf("watch %s %s/%s: %w", watcher.kind.Resource(), namespace, name, markUnavailable(err))
	case !exists:
		return o, notFoundError{apierrors.NewNotFound(schema.GroupResource{Resource: watcher.kind.Resource()}, name)}
	}
	return o, nil
}

func isNotFound(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// Watch calls changed for each changed config map, secret, CSI driver and cluster trust bundle, until ctx ends. A node may not
// watch claims and persistent volumes. Watch implements volume.Watcher.
func (b *Objects) Watch(ctx context.Context, changed func(kind, namespace, name string)) error {
	return b.watchers.Watch(ctx, changed)
}

// PersistentVolumeClaim reads a claim that a pod of this node uses. While the API server is unavailable, it returns the cached
// copy.
func (b *Objects) PersistentVolumeClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	ctx, cancel := b.withReadTimeout(ctx)
	defer cancel()
	o, err := readObject(ctx, b.client, kubeapi.PersistentVolumeClaims, namespace, name)
	return cacheOrLoad(b, kindClaim, namespace, name, o, err)
}

// PersistentVolume reads a volume that is bound to a claim of a pod of this node. While the API server is unavailable, it returns
// the cached copy.
func (b *Objects) PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	ctx, cancel := b.withReadTimeout(ctx)
	defer cancel()
	o, err := readObject(ctx, b.client, kubeapi.PersistentVolumes, "", name)
	return cacheOrLoad(b, kindPV, "", name, o, err)
}

// VolumeAttachment reads the VolumeAttachment object that reports whether a volume is attached to this node. While the API server
// is unavailable, it returns the cached copy.
func (b *Objects) VolumeAttachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error) {
	ctx, cancel := b.withReadTimeout(ctx)
	defer cancel()
	o, err := readObject(ctx, b.client, kubeapi.VolumeAttachments, "", name)
	return cacheOrLoad(b, kindAttachment, "", name, o, err)
}

// CSIDriver returns the watched CSIDriver object of that name. While the API server is unavailable, it returns the cached copy.
func (b *Objects) CSIDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	if status := b.drivers.Status(); status.Synced.IsZero() && isUnavailable(status.Err) { // the API server is unavailable
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
		if status.Err == nil { // the server is slow, not unavailable
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
