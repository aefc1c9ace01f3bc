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

// protection is the finalizer of a claim that is in use.
const protection = "kubernetes.io/pvc-protection"

// Of returns the name of the claim that a volume of a pod has, in the namespace of the pod. A generic ephemeral volume has one that was
// made for it. It reports false for a volume without a claim.
func Of(pod *corev1.Pod, v *corev1.Volume) (name string, ok bool) {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName, true
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name, true
	default:
		return "", false
	}
}

// ReadOnly reports whether a volume with a claim is mounted read-only in all containers.
func ReadOnly(v *corev1.Volume) bool { return optional.OrZero(v.PersistentVolumeClaim).ReadOnly }

// Check returns why a pod cannot use the claim of a volume, or nil.
func Check(pod *corev1.Pod, v *corev1.Volume, pvc *corev1.PersistentVolumeClaim) error {
	err := usable(pvc)
	if err == nil && v.Ephemeral != nil && !owns(pod, pvc) {
		err = fmt.Errorf("PVC was not created for pod %s/%s (pod is not owner)", pod.Namespace, pod.Name)
	}
	return named(pvc, err)
}

func usable(pvc *corev1.PersistentVolumeClaim) error {
	switch {
	case pvc.DeletionTimestamp != nil && !slices.Contains(pvc.Finalizers, protection):
		return errors.New("PVC is being deleted") // with the finalizer it stays until the pods are gone that use it
	case pvc.Status.Phase != corev1.ClaimBound:
		return errors.New("PVC is not bound")
	case pvc.Spec.VolumeName == "":
		return errors.New("PVC has empty pvc.Spec.VolumeName")
	}
	return nil
}

// owns reports whether a claim was made for an ephemeral volume of a pod.
func owns(pod *corev1.Pod, pvc *corev1.PersistentVolumeClaim) bool {
	owner := metav1.GetControllerOfNoCopy(pvc)
	switch {
	case owner == nil || pvc.Namespace != pod.Namespace:
		return false
	case owner.UID == "": // from a file, where the UID of a pod is not known
		return owner.Kind == "Pod" && owner.Name == pod.Name
	default:
		return owner.UID == pod.UID
	}
}

// CheckVolume returns why a pod cannot use the volume that a claim is bound to, or nil.
func CheckVolume(pod *corev1.Pod, v *corev1.Volume, pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) error {
	err := bound(pvc, pv)
	if err == nil {
		err = checkMode(pod, v, mode(pv))
	}
	return named(pvc, err)
}

func bound(pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) error {
	switch ref := pv.Spec.ClaimRef; {
	case ref == nil:
		return fmt.Errorf("PV %s has no claimRef, so it is not yet bound to the claim", pv.Name)
	case ref.Namespace != pvc.Namespace || ref.Name != pvc.Name: // in objects from files no UID tells claims apart
		return fmt.Errorf("the claimRef of PV %s is of claim %s/%s", pv.Name, ref.Namespace, ref.Name)
	case ref.UID != pvc.UID:
		return fmt.Errorf("the claimRef of PV %s has UID %q, that of the claim is %q", pv.Name, ref.UID, pvc.UID)
	}
	return nil
}

// Block reports whether a volume is a block device.
func Block(pv *corev1.PersistentVolume) bool { return mode(pv) == corev1.PersistentVolumeBlock }

// mode returns the mode of a volume, which is Filesystem where it says none.
func mode(pv *corev1.PersistentVolume) corev1.PersistentVolumeMode {
	if pv.Spec.VolumeMode == nil {
		return corev1.PersistentVolumeFilesystem
	}
	return *pv.Spec.VolumeMode
}

// checkMode returns an error for a container that mounts anything but a file system, or has anything but a block device for a device.
func checkMode(pod *corev1.Pod, v *corev1.Volume, mode corev1.PersistentVolumeMode) error {
	for c := range containers.All(&pod.Spec) {
		for i := range c.VolumeMounts {
			if c.VolumeMounts[i].Name == v.Name && mode != corev1.PersistentVolumeFilesystem {
				return fmt.Errorf("volume %s has volumeMode %s, but is specified in volumeMounts", v.Name, mode)
			}
		}
		for _, d := range c.VolumeDevices {
			if d.Name == v.Name && mode != corev1.PersistentVolumeBlock {
				return fmt.Errorf("volume %s has volumeMode %s, but is specified in volumeDevices", v.Name, mode)
			}
		}
	}
	return nil
}

// named adds the name of a claim to an error.
func named(pvc *corev1.PersistentVolumeClaim, err error) error {
	if err == nil {
		return nil
	}
	return Error(pvc.Namespace, pvc.Name, err)
}

// Error adds the name of a claim to an error, in the kubelet's words.
func Error(namespace, name string, err error) error {
	return fmt.Errorf("error processing PVC %s/%s: %w", namespace, name, err)
}
