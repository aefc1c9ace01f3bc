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

// Claims are claims and volumes in memory. It binds what it is told, and checks nothing. The zero value has none. It may be used from
// several goroutines.
type Claims struct {
	mu     sync.Mutex // guards what follows
	claims map[string]*corev1.PersistentVolumeClaim
	pvs    map[string]*corev1.PersistentVolume
	down   error
}

var _ volume.Claims = (*Claims)(nil)

// Bind puts a volume, and a claim of a namespace and name that is bound to it with all of its capacity, in place of an earlier one.
func (c *Claims) Bind(namespace, name string, pv *corev1.PersistentVolume) {
	pvc := &corev1.PersistentVolumeClaim{}
	pvc.Namespace, pvc.Name, pvc.UID = namespace, name, types.UID("claim-"+namespace+"-"+name)
	pvc.Spec.VolumeName, pvc.Spec.AccessModes = pv.Name, pv.Spec.AccessModes
	pvc.Status.Phase, pvc.Status.Capacity = corev1.ClaimBound, pv.Spec.Capacity
	pv = pv.DeepCopy()
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: name, UID: pvc.UID}
	c.Put(pvc, pv)
}

// Put puts a claim and a volume; nil leaves one as it is.
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

// Down makes all calls fail with an error from now on; nil: none.
func (c *Claims) Down(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = err
}

// PersistentVolumeClaim returns a claim.
func (c *Claims) PersistentVolumeClaim(_ context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return find(c, func() map[string]*corev1.PersistentVolumeClaim { return c.claims }, namespace+"/"+name)
}

// PersistentVolume returns a volume.
func (c *Claims) PersistentVolume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	return find(c, func() map[string]*corev1.PersistentVolume { return c.pvs }, name)
}

func find[T any](c *Claims, objects func() map[string]*T, name string) (*T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch o := objects()[name]; {
	case c.down != nil:
		return nil, c.down
	case o == nil:
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	default:
		return o, nil
	}
}
