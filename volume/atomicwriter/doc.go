// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package atomicwriter writes a set of files into a directory atomically: a reader sees the old set or the new one, but never a
// mixture. It is for volumes of config maps, secrets and the downward API. It does not create the directory, mounts nothing, and
// does not sync to disk.
//
//	changed, err := atomicwriter.Write(dir, map[string]atomicwriter.File{
//		"app.conf":    {Data: conf, Mode: 0o644},
//		"tls/key.pem": {Data: key, Mode: 0o400},
//	}, atomicwriter.Options{})
//
// # Model
//
// Each set of files is in a directory of its own, called a version. Symbolic links point to the current version:
//
//	volume/..2026_01_02_03_04_05.123/name    the version
//	volume/..data -> ..2026_01_02_03_04_05.123
//	volume/name -> ..data/name               one for each first element of a path
//
// [Write] creates a new version, and renames a symbolic link to it over "..data". If the current version already has these files,
// Write changes nothing.
//
// Containers may write to the directory, so its contents are not trusted. No symbolic link in it is followed, except "..data" if
// its target has the name of a version. Files of a killed writer, and links to removed files, are removed by the next Write.
//
// # Concurrency
//
// The caller serializes calls for one directory. Readers need no lock.
//
// # Errors
//
// An invalid set of files is refused before any change: see [Validate]. If changed is false, an error has left the old version in
// place. If changed is true, the new version is in place, and parts of the old one could not be removed; the next Write retries
// that. No error contains file contents.
//
// # Differs from the kubelet
//
// The model is pkg/volume/util/atomic_writer.go of Kubernetes 1.37. Number, size and depth of files are limited. DIFFERENCES.md
// lists all differences.
//
// Test kit: none is needed. Call Write on a directory below testing.T.TempDir.
package atomicwriter
