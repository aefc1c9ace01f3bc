// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// Object exports getObject.
func (p *Pods) Object(namespace, name string) (*corev1.Pod, bool) {
	return p.getObject(namespace, name)
}

// Mirror exports mirrorOf.
func (p *Pods) Mirror(static *corev1.Pod) (*corev1.Pod, bool) { return p.mirrorOf(static) }

// Synced exports isSynced.
func (p *Pods) Synced() bool { return p.isSynced() }

// Pending exports pendingPods.
func (s *Statuses) Pending() int { return s.pendingPods() }

// ClaimExpanded exports reportClaimExpanded.
func (b *Objects) ClaimExpanded(ctx context.Context, claim *corev1.PersistentVolumeClaim, size int64) error {
	return b.reportClaimExpanded(ctx, claim, size)
}
