// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podfield

// The limits of a pod's DNS configuration, which are those of the resolvers in use (KEP-2595).
const (
	MaxNameservers = 3
	MaxSearches    = 32
	MaxSearchChars = 2048 // of all search domains, with spaces between
)

// What the kernel takes.
const (
	MaxFQDN = 64      // characters of a host name with its domain
	MaxPath = 4 << 10 // bytes of a path with the terminating zero: PATH_MAX
)

// A runtime answers a list of all sandboxes, or of all containers, in one message of at most 16 MiB, with all labels
// and annotations: larger, and no agent can list anything. So what a pod can add to a list is bounded. 110 pods with
// MaxListed each make 13.75 MiB, which leaves 20 KiB for the names and IDs of each pod.
const (
	MaxListed        = 128 << 10 // bytes: of a pod in the list of containers, and of one container's labels and annotations
	MaxSandboxLabels = 64 << 10  // bytes of the labels of a pod
	MaxAnnotations   = 256 << 10 // bytes of its annotations: TotalAnnotationSizeLimitB of the API server
	MaxHook          = 64 << 10  // bytes of a lifecycle hook as JSON; a preStop hook is an annotation of its container
)

// MapSize returns the size of labels or annotations in bytes.
func MapSize(m map[string]string) int {
	size := 0
	for k, v := range m {
		size += len(k) + len(v)
	}
	return size
}
