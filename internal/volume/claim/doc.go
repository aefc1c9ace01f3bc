// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package claim has the rules for volumes with a PersistentVolumeClaim: which claim a volume has, whether a pod may use the claim
// and its PV, and whether the volume must be expanded on the node. It reads no API objects and binds no claims.
//
//	name, ok := claim.NameOf(pod, source)
//	pvc, err := claims.PersistentVolumeClaim(ctx, pod.Namespace, name)
//	err = claim.CheckClaim(pod, source, pvc)
//	pv, err := claims.PersistentVolume(ctx, pvc.Spec.VolumeName)
//	err = claim.CheckPV(pod, source, pvc, pv)
//
// The rules hold for the volumes of all plugins. The fields of the PV source are checked by the plugin.
//
// # Concurrency
//
// All functions are pure.
//
// # Errors
//
// An error names the claim, and gives the reason with the text of the kubelet.
//
// # Differs from the kubelet
//
// The rules are those of pkg/kubelet/volumemanager/populator and pkg/volume/util/operationexecutor at 1.37.1. See DIFFERENCES.md.
//
// Test kit: none is needed, because all functions are pure.
package claim
