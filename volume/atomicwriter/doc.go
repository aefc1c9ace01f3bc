// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package atomicwriter writes a set of files into a directory so that a reader sees the old set or the new one, and never
// a mix: what a volume of a config map, a secret or the downward API consists of. It does not make the directory, mount
// nothing, and waits for no disk.
//
// # Model
//
// The files of a set are in a directory of their own, a version, beside which links lead to them:
//
//	volume/..2026_01_02_03_04_05.123/name    the version
//	volume/..data -> ..2026_01_02_03_04_05.123
//	volume/name -> ..data/name               one for each first element of a path
//
// A new version is written beside the old one, and becomes the current one by a rename over "..data". [Write] leaves the
// directory alone if the current version holds the payload.
//
//	changed, err := atomicwriter.Write(dir, map[string]atomicwriter.File{
//		"app.conf":   {Data: conf, Mode: 0o644},
//		"tls/key.pem": {Data: key, Mode: 0o400},
//	}, atomicwriter.Options{})
//
// The directory is mounted into containers, so that what is in it is read as hostile: no link in it is followed, but for
// the name of the current version, which has to look like one. What a writer that was killed has left, and links to files
// that are no more, go with the next write.
//
// # Concurrency
//
// Writes into one directory come one after the other; into several, at the same time. Readers need nothing.
//
// # Errors
//
// A payload that cannot be written is refused before anything is: [Validate]. An error with changed=false has left the old
// version in place, and nothing of the new one. With changed=true the new version is in place, and only something of the
// old one could not be removed; the next write tries that again. No error has the content of a file.
//
// # Differs from the kubelet
//
// The model is pkg/volume/util/atomic_writer.go of Kubernetes 1.37. The number and the size of files are limited, and so is
// the nesting of paths. DIFFERENCES.md has all differences.
//
// What belongs here: the protocol of links and renames. What does not: which files a volume has, the mode of a token,
// groups (Options.SetPerms), and what is mounted.
//
// Test kit: Write on a directory below testing.T.TempDir.
package atomicwriter
