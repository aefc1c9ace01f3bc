// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/internal/volume/claim"
)

// The kinds of cached objects that [Objects.Watch] does not report.
const (
	kindClaim        = "PersistentVolumeClaim"
	kindPV           = "PersistentVolume"
	kindAttachment   = "VolumeAttachment"
	kindRuntimeClass = "RuntimeClass"
)

// cacheOrLoad caches the object of a successful read, or returns the cached copy if the API server is unavailable.
func cacheOrLoad[T any, P interface {
	*T
	kubeapi.Object
}](objects *Objects, kind, namespace, name string, object P, err error) (P, error) {
	switch {
	case objects.cache == nil:
		return orNil[T](object, err) // no cache
	case err == nil:
		slim := object.DeepCopyObject().(P) // the copy has the type of o
		slim.SetManagedFields(nil)
		annotations := maps.Clone(slim.GetAnnotations())
		delete(annotations, corev1.LastAppliedConfigAnnotation)
		slim.SetAnnotations(annotations)
		objects.cacheObject(kind, slim)
		return object, nil
	}
	object = new(T)
	return orNil[T](object, objects.loadFromCache(kind, namespace, name, object, err))
}

// RuntimeClass returns the handler of the named runtime class, for podspec.Options.RuntimeClasses. ok is false if the class
// does not exist or is not listed yet. If the first list fails, the handler in the cache on disk is returned.
func (b *Objects) RuntimeClass(class string) (handler string, ok bool) {
	handler, ok = b.classes.Get(class)
	if b.cache == nil {
		return handler, ok
	}
	kept := &nodev1.RuntimeClass{}
	switch status := b.classes.Status(); {
	case ok:
		kept.Name, kept.Handler, kept.ResourceVersion = class, handler, "handler "+handler // the table holds only the handler
		b.cacheObject(kindRuntimeClass, kept)
	case status.Synced.IsZero() && status.Err != nil:
		ok = b.loadFromCache(kindRuntimeClass, "", class, kept, status.Err) == nil
		handler = kept.Handler
	}
	return handler, ok
}

// addReferencedFiles adds to files the names of the cache files that the volumes and runtime classes of these pods need.
func (b *Objects) addReferencedFiles(pods []*corev1.Pod, files map[string]bool) {
	for _, pod := range pods {
		if class := pod.Spec.RuntimeClassName; class != nil {
			files[cacheFileName(kindRuntimeClass, *class)] = true
		}
		for i := range pod.Spec.Volumes {
			vol := &pod.Spec.Volumes[i]
			if vol.CSI != nil {
				files[cacheFileName(kindCSIDriver, vol.CSI.Driver)] = true
			}
			name, claimed := claim.NameOf(pod, vol)
			if !claimed {
				continue
			}
			files[cacheFileName(kindClaim, kubeapi.Key(pod.Namespace, name))] = true
			var pvc corev1.PersistentVolumeClaim
			var pv corev1.PersistentVolume
			if b.cache.loadObject(kindClaim, pod.Namespace, name, &pvc) == nil && b.cache.loadObject(kindPV, "", pvc.Spec.VolumeName, &pv) == nil {
				b.addVolumeFiles(&pv, files)
			}
		}
	}
}

// addVolumeFiles adds to files the names of the cache files for a persistent volume: the volume itself, its CSI driver, its
// attachment and its secrets.
func (b *Objects) addVolumeFiles(pv *corev1.PersistentVolume, files map[string]bool) {
	files[cacheFileName(kindPV, pv.Name)] = true
	c := pv.Spec.CSI
	if c == nil {
		return
	}
	files[cacheFileName(kindCSIDriver, c.Driver)] = true
	files[cacheFileName(kindAttachment, attachmentName(c.VolumeHandle, c.Driver, b.node))] = true
	for _, ref := range []*corev1.SecretReference{c.NodeStageSecretRef, c.NodePublishSecretRef, c.NodeExpandSecretRef} {
		if ref != nil {
			files[cacheFileName(kindSecret, kubeapi.Key(ref.Namespace, ref.Name))] = true
		}
	}
}

// attachmentName returns the name of the VolumeAttachment for a CSI volume on a node. Source: getAttachmentName in
// pkg/volume/csi.
func attachmentName(volumeHandle, driver, node string) string {
	sum := sha256.Sum256([]byte(volumeHandle + driver + node))
	return "csi-" + hex.EncodeToString(sum[:])
}
