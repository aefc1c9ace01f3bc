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

// Claims is where claims and the volumes they are bound to are. An object that does not exist is an error that wraps
// fs.ErrNotExist; any other error is that it cannot be known. What is returned is not changed. Package objects has some.
type Claims interface {
	// PersistentVolumeClaim returns a claim.
	PersistentVolumeClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
	// PersistentVolume returns a volume.
	PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
}

// claimed is what a volume with a claim is made of.
type claimed struct {
	pvc *corev1.PersistentVolumeClaim
	pv  *corev1.PersistentVolume
}

// resolveClaim fetches the claim of a volume and what it is bound to, and checks both. It returns nil for a volume without one.
func (rs resolver) resolveClaim(ctx context.Context, pod *corev1.Pod, vol *corev1.Volume) (*claimed, error) {
	name, ok := claim.Of(pod, vol)
	if !ok {
		return nil, nil
	}
	if rs.opts.Claims == nil {
		return nil, claim.Error(pod.Namespace, name, errors.New("this node has no claims"))
	}
	pvc, err := rs.opts.Claims.PersistentVolumeClaim(ctx, pod.Namespace, name)
	if err != nil {
		return nil, claim.Error(pod.Namespace, name, unknown(err))
	}
	if err := claim.Check(pod, vol, pvc); err != nil {
		return nil, err
	}
	pv, err := rs.opts.Claims.PersistentVolume(ctx, pvc.Spec.VolumeName)
	if err != nil {
		return nil, claim.Error(pod.Namespace, name, unknown(err))
	}
	if err := claim.CheckVolume(pod, vol, pvc, pv); err != nil {
		return nil, err
	}
	return &claimed{pvc, pv}, nil
}

// recordedClaim returns the claim in the record of a volume; nil: there is none.
func recordedClaim(v *record.Volume) *claimed {
	if v.Claim == nil || v.PV == nil {
		return nil
	}
	return &claimed{v.Claim, v.PV}
}

// fill adds the claim of a volume, if it has one.
func (v *Volume) fill(c *claimed) {
	if c != nil {
		v.Claim, v.PV, v.MountOptions = c.pvc, c.pv, claim.MountOptions(c.pv)
	}
}
