// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package gctest is the test kit of package gc: a simulated image store on a simulated disk, and the conformance suite that every
// [gc.ImageGC] passes. The images of the store share layers, and the space of removed images may become available late. The package
// starts no goroutines.
//
// The store does not simulate pulls, moving tags or image handlers, and its containers have only the images that they use; package
// critest has a full runtime. The disk has no file system overhead, and only [Store.SetOtherBytes] changes the space used by other
// data.
package gctest
