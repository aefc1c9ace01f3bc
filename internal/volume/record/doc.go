// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package record reads and writes the records of volumes: a file volumes.json in the directory of each pod. It lists each volume
// before the set-up, so that a restarted agent can tear it down. The package sets up no volumes.
//
// # Model
//
// [ReadAll] reads the records of all pods. [Pod.Write] atomically replaces the record of a pod, and [Pod.Remove] deletes it after
// the last teardown. [VolumeDir] is the directory layout of the kubelet.
//
// # Concurrency
//
// Calls for different pods may run concurrently. The caller serializes the calls for one pod.
//
// # Errors
//
// A record is refused if it is damaged, belongs to another pod, or has a path outside the directory of its pod.
package record
