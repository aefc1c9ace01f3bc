// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"context"
	"fmt"
	"io/fs"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/volume"
)

// Claims stores PersistentVolumeClaims and PersistentVolumes in memory, without checks. It implements [volume.Claims]. The zero
// value is empty. It may be used from several goroutines.
type Claims struct {
	mu     sync.Mutex // guards the fields below
	claims map[string]*corev1.PersistentVolumeClaim
	pvs    map[string]*corev1.PersistentVolume
	err    error
}

var _ volume.Claims = (*Claims)(nil)

// Bind stores a PV, and a claim with this namespace and name that is bound to the PV and has its capacity. It replaces
// existing objects of these names.
func (c *Claims) Bind(namespace, name string, pv *corev1.PersistentVolume) {
	pvc := &corev1.PersistentVolumeClaim{}
	pvc.Namespace, pvc.Name, pvc.UID = namespace, name, types.UID("claim-"+namespace+"-"+name)
	pvc.Spec.VolumeName, pvc.Spec.AccessModes = pv.Name, pv.Spec.AccessModes
	pvc.Status.Phase, pvc.Status.Capacity = corev1.ClaimBound, pv.Spec.Capacity
	pv = pv.DeepCopy()
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: name, UID: pvc.UID}
	c.Put(pvc, pv)
}

// Put stores copies of a claim and a PV. It replaces existing objects of these names, and ignores a nil argument.
func (c *Claims) Put(pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.claims == nil {
		c.claims, c.pvs = map[string]*corev1.PersistentVolumeClaim{}, map[string]*corev1.PersistentVolume{}
	}
	if pvc != nil {
		c.claims[pvc.Namespace+"/"+pvc.Name] = pvc
	}
	if pv != nil {
		c.pvs[pv.Name] = pv
	}
}

// FailCalls makes PersistentVolumeClaim and PersistentVolume return err until FailCalls is called again. A nil err makes them
// succeed again.
func (c *Claims) FailCalls(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// PersistentVolumeClaim returns a claim.
func (c *Claims) PersistentVolumeClaim(_ context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return findObject(c, func() map[string]*corev1.PersistentVolumeClaim { return c.claims }, namespace+"/"+name)
}

// PersistentVolume returns a PV.
func (c *Claims) PersistentVolume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	return findObject(c, func() map[string]*corev1.PersistentVolume { return c.pvs }, name)
}

func findObject[T any](c *Claims, objects func() map[string]*T, name string) (*T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch o := objects()[name]; {
	case c.err != nil:
		return nil, c.err
	case o == nil:
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	default:
		return o, nil
	}
}
