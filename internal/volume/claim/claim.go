// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/optional"
)

// protectionFinalizer is the finalizer that keeps a deleted claim while pods use it.
const protectionFinalizer = "kubernetes.io/pvc-protection"

// NameOf returns the name of the claim that vol uses; its namespace is the namespace of pod. The claim of a generic
// ephemeral volume is named POD-VOLUME. ok is false if the volume has no claim.
func NameOf(pod *corev1.Pod, vol *corev1.Volume) (name string, ok bool) {
	switch {
	case vol.PersistentVolumeClaim != nil:
		return vol.PersistentVolumeClaim.ClaimName, true
	case vol.Ephemeral != nil:
		return pod.Name + "-" + vol.Name, true
	default:
		return "", false
	}
}

// IsReadOnly reports whether v uses its claim as read-only, so that no container can write to it.
func IsReadOnly(v *corev1.Volume) bool { return optional.OrZero(v.PersistentVolumeClaim).ReadOnly }

// CheckClaim returns an error if pod cannot use the claim pvc for the volume vol: pvc is not bound, is being deleted, or
// was created for an ephemeral volume of another pod.
func CheckClaim(pod *corev1.Pod, vol *corev1.Volume, pvc *corev1.PersistentVolumeClaim) error {
	err := checkBinding(pvc)
	if err == nil && vol.Ephemeral != nil && !isOwner(pod, pvc) {
		err = fmt.Errorf("PVC was not created for pod %s/%s (pod is not owner)", pod.Namespace, pod.Name)
	}
	return wrapWithName(pvc, err)
}

// checkBinding returns an error if pvc is not bound to a PV, or is deleted and no longer protected by its finalizer.
func checkBinding(pvc *corev1.PersistentVolumeClaim) error {
	switch {
	case pvc.DeletionTimestamp != nil && !slices.Contains(pvc.Finalizers, protectionFinalizer):
		return errors.New("PVC is being deleted") // with the finalizer, the claim exists until no pod uses it
	case pvc.Status.Phase != corev1.ClaimBound:
		return errors.New("PVC is not bound")
	case pvc.Spec.VolumeName == "":
		return errors.New("PVC has empty pvc.Spec.VolumeName")
	}
	return nil
}

// isOwner reports whether pvc was created for a generic ephemeral volume of pod.
func isOwner(pod *corev1.Pod, pvc *corev1.PersistentVolumeClaim) bool {
	owner := metav1.GetControllerOfNoCopy(pvc)
	switch {
	case owner == nil || pvc.Namespace != pod.Namespace:
		return false
	case owner.UID == "": // a claim from a file, which does not know the UID of the pod
		return owner.Kind == "Pod" && owner.Name == pod.Name
	default:
		return owner.UID == pod.UID
	}
}

// CheckPV returns an error if pod cannot use pv for the volume vol. pv must be bound to the claim pvc. Its volumeMode must
// fit the containers: volumeMounts need Filesystem, and volumeDevices need Block.
func CheckPV(pod *corev1.Pod, vol *corev1.Volume, pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) error {
	err := checkClaimRef(pvc, pv)
	if err == nil {
		err = checkMode(pod, vol, volumeMode(pv))
	}
	return wrapWithName(pvc, err)
}

// checkClaimRef returns an error unless the claimRef of pv has the namespace, the name and the UID of pvc.
func checkClaimRef(pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) error {
	switch ref := pv.Spec.ClaimRef; {
	case ref == nil:
		return fmt.Errorf("PV %s has no claimRef, so it is not yet bound to the claim", pv.Name)
	case ref.Namespace != pvc.Namespace || ref.Name != pvc.Name: // objects from files have no UIDs, so that names are compared first
		return fmt.Errorf("the claimRef of PV %s is of claim %s/%s", pv.Name, ref.Namespace, ref.Name)
	case ref.UID != pvc.UID:
		return fmt.Errorf("the claimRef of PV %s has UID %q, that of the claim is %q", pv.Name, ref.UID, pvc.UID)
	}
	return nil
}

// IsBlock reports whether a PV is a block device.
func IsBlock(pv *corev1.PersistentVolume) bool { return volumeMode(pv) == corev1.PersistentVolumeBlock }

// volumeMode returns the volumeMode of pv. The default is Filesystem.
func volumeMode(pv *corev1.PersistentVolume) corev1.PersistentVolumeMode {
	if pv.Spec.VolumeMode == nil {
		return corev1.PersistentVolumeFilesystem
	}
	return *pv.Spec.VolumeMode
}

// checkMode returns an error if the volumeMode does not fit the volumeMounts (Filesystem) and volumeDevices (Block) of the
// pod.
func checkMode(pod *corev1.Pod, vol *corev1.Volume, mode corev1.PersistentVolumeMode) error {
	for c := range containers.All(&pod.Spec) {
		for i := range c.VolumeMounts {
			if c.VolumeMounts[i].Name == vol.Name && mode != corev1.PersistentVolumeFilesystem {
				return fmt.Errorf("volume %s has volumeMode %s, but is specified in volumeMounts", vol.Name, mode)
			}
		}
		for _, d := range c.VolumeDevices {
			if d.Name == vol.Name && mode != corev1.PersistentVolumeBlock {
				return fmt.Errorf("volume %s has volumeMode %s, but is specified in volumeDevices", vol.Name, mode)
			}
		}
	}
	return nil
}

// wrapWithName adds the namespace and name of pvc to the text of err. It returns nil if err is nil.
func wrapWithName(pvc *corev1.PersistentVolumeClaim, err error) error {
	if err == nil {
		return nil
	}
	return WrapError(pvc.Namespace, pvc.Name, err)
}

// WrapError adds the namespace and name of a claim to the text of err, in the words of the kubelet. err must not be nil.
func WrapError(namespace, name string, err error) error {
	return fmt.Errorf("error processing PVC %s/%s: %w", namespace, name, err)
}
