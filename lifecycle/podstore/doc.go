// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podstore stores the desired pods of a node in a file, so that an agent that starts without network and API server can
// run them. It does not fetch or run pods, and does not store the config maps, secrets and tokens that they refer to.
//
//	sources := []string{source.File, "api"}
//	reconciler, err := lifecycle.New(runtime, observer, lifecycle.Options{Sources: sources})
//	...
//	store := podstore.New("/var/lib/agent/pods", podstore.Options{Sources: sources})
//	sets, err := store.Load() // before any source reports
//	if err != nil {
//		log.Print(err) // continue: see "Errors"
//	}
//	for _, set := range sets {
//		err := reconciler.Set(set)
//		...
//	}
//	wg.Go(func() { _ = store.Run(ctx) }) // writes the file
//	dir.Run(ctx, func(u source.Update) {
//		err := reconciler.Set(store.Update(u.PodSet))
//		...
//	})
//
// # Model
//
// A [Store] is between the sources of pods and the Reconciler. A loaded set is always incomplete, so that the Reconciler does not
// tear down orphaned pods yet. While a source reports incomplete sets, for example because a manifest cannot be read, the loaded
// pods that it has not listed since the start stay desired. A listed pod is removed when its source drops it, or lists another
// pod with its name.
//
// # The file
//
// The first line has the format version, the time and a SHA-256 checksum. Each further line is a pod in JSON, with its status and
// without metadata.managedFields. It may contain passwords in environment variables: its mode is 0600.
//
//	nodeagent-pods version=1 saved=2026-05-04T03:02:01Z sha256=...
//	{"source":"file","pod":{"metadata":{"name":"web",...
//
// The file is replaced atomically, at most once per Options.Interval, after pods have changed. After a power failure the changes
// of the last Interval may be lost. Its size is limited, so that a damaged file cannot stop the agent: 32 MiB, 400,000 JSON
// values, lists of 1,000 elements, strings of 2 MiB, and quantity exponents from -100 to 100. A pod above the limits is not
// stored, which is reported to [Hooks].Error. If not all pods fit, pods of the first of Options.Sources are preferred, terminated
// pods are dropped first, and namespaces have equal shares.
//
// # Concurrency
//
// Load is called once, before all other methods, which may be called concurrently. Pods are shared with the caller and must not
// be written to. Only one Store may use a file at a time.
//
// # Errors
//
// A missing file is no error. A damaged file, or one of another format version, is an [ErrCorrupt]: no pod is loaded, and the
// file is renamed to NAME.corrupt-TIME, of which the newest three are kept. After any other error the file is unchanged until the
// next write. In all cases the agent should continue: running pods are kept until every source has reported a complete set.
//
// The kubelet has no such file: without an API server it runs static pods only.
//
// Test kit: use a file below testing.T.TempDir; package critest has a runtime in memory.
package podstore
