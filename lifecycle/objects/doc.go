// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package objects provides config maps, secrets, services, claims, volumes and CSI drivers to agents without an API server:
// [Memory] stores objects of the program, [Dir] reads them from a directory. It does not restrict which pod may use an object.
//
// # Model
//
// Memory and Dir return objects by namespace and name:
//
//	refs, err := podspec.ResolveReferences(ctx, pod, container, objects.NewDir("/etc/agent/objects"), volumes)
//
// A [Dir] has one manifest per object at <namespace>/<kind>/<name>.yaml, where kind is configmaps, secrets, services or
// persistentvolumeclaims. Cluster-scoped objects are at persistentvolumes/<name>.yaml and csidrivers/<name>.yaml. A claim with
// spec.volumeName is bound, even without status. Nothing is cached. Replace a file by a rename, so that no reader gets a part of
// it.
//
// [Dir.Watch] and [Memory.Watch] report which object may have changed. A notification may be redundant, but none is lost while
// the watch runs.
//
// An object that an API server would reject is an error, for example if a key is not a valid file name, or if the object has too
// much data. The stringData of a secret is moved to data.
//
// # Concurrency
//
// All methods are safe for concurrent use. Returned objects must not be modified.
//
// # Errors
//
// Every error is an [*Error] with the object and the file, and without the data of a secret. The error for a missing object wraps
// [fs.ErrNotExist].
//
// # Differs from the kubelet
//
// The kubelet gets these objects only from the API server. The cost of decoding a manifest is limited, because the agent reads it
// at each pod start: 3 MiB, 50,000 values (100,000 if larger than 1 MiB), lists of 1,000 elements, 100 levels, strings of 2 MiB
// in JSON. YAML aliases count as their content.
//
// Test kit: [Memory] serves the objects of a test.
package objects
