// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package objects holds the config maps, secrets and services that pods refer to, for agents that do not get them from
// an API server: [Memory] keeps those that it was given, [Dir] reads them from a directory. It does not watch anything
// and does not decide which pod may see what.
//
// # Model
//
// Both are sources of objects by namespace and name, and so fit where package podspec asks for one:
//
//	refs, err := podenv.Resolve(ctx, pod, container, objects.NewDir("/etc/agent/objects"), volumes)
//
// A [Dir] holds one manifest for each object, at <namespace>/<kind>/<name>.yaml, where the kind is configmaps, secrets
// or services. Nothing is kept between two calls, so that a change of a file counts from the next call on. A file is
// replaced by renaming another one, or a reader can see half of it.
//
// What an API server refuses is refused here too: keys that are not file names, more data than fits into an object,
// addresses that are none. The stringData of a secret becomes data.
//
// What a manifest may cost is bounded, too, as an agent reads it whenever a pod starts: 3 MiB, 50,000 values (100,000 if
// it is larger than 1 MiB), lists of 1,000 elements, 100 levels, strings of 2 MiB as they are in JSON. Aliases of YAML
// count as what they stand for. These limits are ours.
//
// # Concurrency
//
// All methods can be called at any time by several goroutines. The objects that they return are not to be changed.
//
// # Errors
//
// Every error is an [*Error], which names the object and the file, and never holds what is in a secret. One about an
// object that does not exist wraps [fs.ErrNotExist].
package objects
