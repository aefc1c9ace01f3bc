// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podapi processes a pod as an API server does before a kubelet sees it: it sets defaults, validates the pod and checks
// updates. It does not check requirements that depend on the node, its runtime or other pods.
//
// # Model
//
// All functions are pure, except that [Default] modifies the pod. A new pod passes three of them:
//
//	podapi.Default(pod)
//	errs := append(podapi.Validate(pod), podapi.Unsupported(pod)...)
//
// [ValidateUpdate] checks later versions of the pod. [ForbiddenSysctls] is part of the admission on a node. [Equal] compares API
// objects.
//
// # Concurrency
//
// The functions are safe for concurrent use while no caller modifies the pods.
//
// # Errors
//
// Every error is a *field.Error with the invalid field and its value, or an [*ImmutableError] that contains such errors. At most
// 100 are returned, and quoted values are cut, so that errors of a malicious manifest can be logged.
//
// # Differs from the API server
//
// Defaults and validation are those of pkg/apis/core at 1.37.1 with default feature gates. DIFFERENCES.md has all differences. A
// user has to know these:
//
//   - A UID is required and must be a valid file name, because directories are named after it; package source generates UIDs.
//   - A list or map of a pod has at most 1,000 entries, and a key at most 1 KiB.
//   - A lifecycle hook has at most 64 KiB as JSON, and the labels of a pod at most 64 KiB. The images, ports, preStop hooks and termination message paths of all containers have at most 128 KiB, so that the runtime's list of the containers of 110 pods fits in 16 MiB.
//   - [Unsupported] rejects resource claims and Windows pods. The fields for Windows are not validated.
//
// Test kit: none; all functions are pure.
package podapi
