// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package objects holds the config maps, secrets, services, claims and volumes that pods refer to, for agents that do not get them from an
// API server: [Memory] keeps those that it was given, [Dir] reads them from a directory. It does not decide which pod may see
// what.
//
// # Model
//
// Both return objects by namespace and name, as the references of a container need them:
//
//	refs, err := podspec.ResolveReferences(ctx, pod, container, objects.NewDir("/etc/agent/objects"), volumes)
//
// A [Dir] holds one manifest for each object, at <namespace>/<kind>/<name>.yaml, where the kind is configmaps, secrets,
// services or persistentvolumeclaims. Those of the whole cluster are at persistentvolumes/<name>.yaml and
// csidrivers/<name>.yaml. A claim that names its volume is bound, without a status too. Nothing is cached between two
// calls, so a change of a file counts from the next call on. Replace a file by
// renaming another one, or a reader can see half of it.
//
// Whoever shows objects for longer, as volumes do, is told of changes by [Dir.Watch] and [Memory.Watch]: which object may be another
// now, not how. A notice too many is possible, a lost one is not, but for the time in which nobody watches.
//
// An object that an API server refuses is refused here too: keys that are not file names, more data than fits into an
// object, invalid addresses. The stringData of a secret becomes data.
//
// What belongs here: objects that pods refer to, and where they are kept. What does not: their use in an environment or a
// volume (package podspec).
//
// # Concurrency
//
// All methods can be called at any time by several goroutines. The returned objects must not be changed.
//
// # Errors
//
// Every error is an [*Error], which names the object and the file, and never contains the data of a secret. One about an
// object that does not exist wraps [fs.ErrNotExist].
//
// # Differs from the kubelet
//
// The kubelet gets these objects from the API server alone. The cost of decoding a manifest is bounded, because an agent
// reads it whenever a pod starts: 3 MiB, 50,000 values (100,000 if it is larger than 1 MiB), lists of 1,000 elements, 100
// levels, strings of 2 MiB as they are in JSON. Aliases of YAML count as what they stand for.
//
// Test kit: [Memory] is the fake; it serves the objects that a test gives it.
package objects
