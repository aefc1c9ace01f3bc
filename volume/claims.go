// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/volume/claim"
	"github.com/seed81659283/nodeagent/internal/volume/record"
)

// Claims reads PersistentVolumeClaims and the PersistentVolumes that they are bound to. If an object does not exist, the error
// wraps [fs.ErrNotExist]; after any other error it is unknown whether it exists. The caller does not modify the result. Package
// objects has implementations.
type Claims interface {
	// PersistentVolumeClaim returns the claim with that namespace and name.
	PersistentVolumeClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
	// PersistentVolume returns the PV with that name.
	PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
}

// claimed is the claim of a volume and the PV that it is bound to.
type claimed struct {
	pvc *corev1.PersistentVolumeClaim
	pv  *corev1.PersistentVolume
}

// resolveClaim returns the claim of a volume and its PV, which the pod may use, or nil for a volume without a claim.
func (rs resolver) resolveClaim(ctx context.Context, pod *corev1.Pod, vol *corev1.Volume) (*claimed, error) {
	name, ok := claim.NameOf(pod, vol)
	if !ok {
		return nil, nil
	}
	if rs.opts.Claims == nil {
		return nil, claim.WrapError(pod.Namespace, name, errors.New("this node has no claims"))
	}
	pvc, err := rs.opts.Claims.PersistentVolumeClaim(ctx, pod.Namespace, name)
	if err != nil {
		return nil, claim.WrapError(pod.Namespace, name, markUnknown(err))
	}
	if err := claim.CheckClaim(pod, vol, pvc); err != nil {
		return nil, err
	}
	pv, err := rs.opts.Claims.PersistentVolume(ctx, pvc.Spec.VolumeName)
	if err != nil {
		return nil, claim.WrapError(pod.Namespace, name, markUnknown(err))
	}
	if err := claim.CheckPV(pod, vol, pvc, pv); err != nil {
		return nil, err
	}
	return &claimed{pvc, pv}, nil
}

// recordedClaim returns the claim and the PV from the record of a volume. If one of them is not recorded, it returns nil.
func recordedClaim(recorded *record.Volume) *claimed {
	if recorded.Claim == nil || recorded.PV == nil {
		return nil
	}
	return &claimed{recorded.Claim, recorded.PV}
}

// fillClaim sets Claim, PV and MountOptions of v. If bound is nil, it does nothing.
func (v *Volume) fillClaim(bound *claimed) {
	if bound != nil {
		v.Claim, v.PV, v.MountOptions = bound.pvc, bound.pv, claim.MountOptions(bound.pv)
	}
}
