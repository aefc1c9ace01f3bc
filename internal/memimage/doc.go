// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package memimage packs the values of variables into a small byte string, and restores them later. A simulated node with ten pods that has
// nothing to do needs some 150 KB of memory; its image has 3 KB.
//
// # Model
//
// [Packer.Pack] encodes variables with all memory that is reachable from them through pointers, slices and maps, also in unexported fields. It
// compresses the result, and sets the variables to zero. [Image.Restore] sets the same variables to equal values in new memory. Pointers to one
// object are again pointers to one object, and cycles stay cycles. A nil slice or map stays nil, and an empty one empty. Only the capacity of slices
// is lost.
//
// Functions, channels, non-nil interfaces, handles of package unique and pointers of the types that [NewPacker] gets are kept as they are: an image has
// references to them, but not their contents. Whatever else refers to packed memory, such as a closure, still sees the old copy. The caller must make
// sure that there is no such reference, except to the variables themselves.
//
// # Limits
//
// Memory that is reachable in two ways with different types or bounds, such as a struct and a pointer to its field, is an error. A pointer to a global
// variable is followed, so that its value is copied: types whose values are compared by address must be given to [NewPacker]. An image is valid in its
// process only.
package memimage
