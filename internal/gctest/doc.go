// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package gctest is the test kit of package gc: a store of images on a disk in memory, whose images share layers and whose room may
// come back late, and the conformance suite that every [gc.ImageGC] passes. It starts no goroutine.
//
// It does not model runtimes: a container is no more than the image that it uses, and pulls, tags that move and image handlers are
// missing; package critest has those. It does not model what a file system takes for itself, and nothing else grows but by
// [Store.Fill].
package gctest
