// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package record reads and writes the records of volumes: a file volumes.json in the directory of each pod, which names each volume before it
// is set up, so that a restarted agent can tear it down. It sets up no volume.
//
// # Model
//
// [ReadAll] reads the records of all pods. [Pod.Write] replaces the record of a pod atomically, and [Pod.Remove] removes it after the last
// teardown. [VolumeDir] is the layout of the kubelet.
//
// # Concurrency
//
// Calls for different pods may run at the same time. The caller serializes the calls for one pod.
//
// # Errors
//
// A record is refused if it is damaged, of another pod, or names a path outside of the directory of its pod.
package record
