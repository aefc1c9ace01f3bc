// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"net/netip"
	"runtime"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups/podtree"
)

// Version is what a Node object has as its kubeletVersion: that of the kubelet whose behaviour this is.
const Version = "v1.37.1+nodeagent"

// What a [Config] has where it says nothing.
const (
	DefaultMaxPods   = 110
	defaultMaxImages = 50
)

// Config is what the operator of a node decides. The zero value of every field but Name is the kubelet's default, except that no
// port is published.
type Config struct {
	// Name of the Node object, as [NodeName] makes it of a host name.
	Name string
	// Hostname is the label kubernetes.io/hostname and the address of type Hostname. Empty: Name.
	Hostname string

	// Labels of a new Node object, beside those that every node has. They win over these.
	Labels map[string]string
	// Taints of a new Node object. Those of an existing one are left alone.
	Taints []corev1.Taint
	// ProviderID is the identity of the machine at its cloud provider. Empty: none.
	ProviderID string
	// ExternalCloudProvider: a controller of the cluster finds the addresses, and removes the taint that it gets for that.
	ExternalCloudProvider bool
	// NoControllerAttachDetach: volumes are not attached by the controller of the cluster, so the annotation that asks for it is missing.
	NoControllerAttachDetach bool

	// NodeIPs are the addresses to publish, at most one of each family. 0.0.0.0 and :: stand for the address of the default route.
	// None: the agent chooses, as the kubelet does.
	NodeIPs []netip.Addr

	// MaxPods is how many pods may run. Zero means [DefaultMaxPods].
	MaxPods int
	// PodsPerCore limits MaxPods on small machines. Zero: it does not.
	PodsPerCore int
	// Reserved is what pods may not use.
	Reserved podtree.Reserved
	// NoLocalStorageCapacity leaves ephemeral-storage out, where the size of the root file system is not known.
	NoLocalStorageCapacity bool

	// MaxImages is how many images are listed, the largest first. Nil means 50, -1 all.
	MaxImages *int32
	// Port of the kubelet API. Zero: none is published, and clients of the API server try 10250.
	Port int32
	// DeclaredFeatures are names of features that need something of a node, which the agent has. Nil: [DeclaredFeatures].
	DeclaredFeatures []string

	// OperatingSystem and Architecture in the terms of Go. Empty: those of this program.
	OperatingSystem, Architecture string
}

func (c *Config) hostname() string { return either(c.Hostname, c.Name) }
func (c *Config) os() string       { return either(c.OperatingSystem, runtime.GOOS) }
func (c *Config) arch() string     { return either(c.Architecture, runtime.GOARCH) }

func (c *Config) maxPods() int {
	if c.MaxPods == 0 {
		return DefaultMaxPods
	}
	return c.MaxPods
}

// maxImages returns how many of n images are listed.
func (c *Config) maxImages(n int) int {
	limit := defaultMaxImages
	if c.MaxImages != nil {
		limit = int(*c.MaxImages)
	}
	if limit < 0 {
		return n
	}
	return min(n, limit)
}

// either returns the first of two strings that is not empty.
func either(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
