// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podfield

// The limits of a pod's DNS configuration, which resolvers have (KEP-2595).
const (
	MaxNameservers = 3
	MaxSearches    = 32
	MaxSearchChars = 2048 // characters of all search domains, separated by spaces
)

// The limits of the kernel.
const (
	MaxFQDN = 64      // characters of a hostname with its domain
	MaxPath = 4 << 10 // bytes of a path with the terminating zero: PATH_MAX
)

// The limits of a pod's share of the runtime's lists. A runtime returns all sandboxes, or all containers, with their labels and
// annotations in one message of at most 16 MiB. Above that, no client can list them. 110 pods with MaxListed bytes take 13.75
// MiB, which leaves 20 KiB per pod for names and IDs.
const (
	MaxListed        = 128 << 10 // bytes of a pod in the list of containers, and of the labels and annotations of a container
	MaxSandboxLabels = 64 << 10  // bytes of the labels of a pod
	MaxAnnotations   = 256 << 10 // bytes of the annotations of a pod: TotalAnnotationSizeLimitB of the API server
	MaxHook          = 64 << 10  // bytes of a lifecycle hook in JSON: a preStop hook is stored in an annotation of its container
)

// MapSize returns the total number of bytes of all keys and values in a map of labels or annotations.
func MapSize(labels map[string]string) int {
	size := 0
	for k, v := range labels {
		size += len(k) + len(v)
	}
	return size
}
