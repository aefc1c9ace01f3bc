// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package claim says which claim a volume of a pod has, whether the pod may use what the claim is bound to, and how much that has to
// grow. It fetches no objects and binds none.
//
// # Model
//
// Whoever sets up a volume asks for its claim, fetches that and the volume it is bound to, and checks both:
//
//	name, ok := claim.Of(pod, source)
//	pvc, err := claims.PersistentVolumeClaim(ctx, pod.Namespace, name)
//	err = claim.Check(pod, source, pvc)
//	pv, err := claims.PersistentVolume(ctx, pvc.Spec.VolumeName)
//	err = claim.CheckVolume(pod, source, pvc, pv)
//
// What belongs here: rules about a PersistentVolumeClaim and a PersistentVolume that every kind of volume has. What a plugin makes of
// them does not.
//
// # Concurrency
//
// All functions are pure.
//
// # Errors
//
// An error is about one claim and names it, and its reason is the kubelet's.
//
// # Differs from the kubelet
//
// The rules are those of pkg/kubelet/volumemanager/populator and pkg/volume/util/operationexecutor at 1.37.1. See DIFFERENCES.md.
//
// Test kit: none is needed, as all of it is pure.
package claim
