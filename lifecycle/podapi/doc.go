// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podapi does to a pod what an API server does before a kubelet sees it: it sets defaults, validates, and judges
// updates. It also names what is valid and not supported by this version. Package podspec translates pods, and package
// lifecycle refuses those that the options of its agent cannot run.
//
// # Model
//
// All functions are pure, but that [Default] writes to the pod. A pod goes through three of them before anything runs:
//
//	podapi.Default(pod)
//	errs := append(podapi.Validate(pod), podapi.Unsupported(pod)...)
//
// and later versions of it through a fourth, [ValidateUpdate]. [ForbiddenSysctls] is for those who decide which pods may
// run on a node at all. [Equal] compares API objects.
//
// It belongs here what is decided about a manifest by itself. What needs to know the node, its runtime or other pods
// does not.
//
// # Concurrency
//
// The functions may be called at the same time, as long as nobody writes to the pods meanwhile.
//
// # Errors
//
// Every error is a *field.Error, which names the field of the pod that is at fault and its value, or an [*ImmutableError],
// which has some. At most 100 are returned, with what they quote cut, so that they can be logged whatever the manifest has.
//
// # Differs from the API server
//
// Defaults and validation are those of pkg/apis/core at 1.37.1 with its default feature gates. What a user must act on,
// with the rest in DIFFERENCES.md:
//
//   - A UID is required and has to be usable as a file name, as directories are made of it: package source makes UIDs.
//   - No list or map of a pod has more than 1,000 entries, and no key more than 1 KiB.
//   - A lifecycle hook has at most 64 KiB as JSON, and the labels of a pod have at most 64 KiB. The images, ports, preStop hooks and termination
//     message paths of all containers have at most 128 KiB, so that the runtime's list of the containers of 110 pods fits in 16 MiB.
//   - Volumes other than images, devices, resource claims and node selectors are refused by [Unsupported].
//   - A pod for Windows is refused by [Unsupported], and not validated as such.
//
// Test kit: none is needed, as all of it is pure.
package podapi
