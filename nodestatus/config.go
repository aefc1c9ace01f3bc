// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"net/netip"
	"runtime"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups/podtree"
)

// Version is the kubeletVersion in the Node object. It names the kubelet release whose behaviour this module implements.
const Version = "v1.37.1+nodeagent"

// Defaults of [Config].
const (
	DefaultMaxPods   = 110
	defaultMaxImages = 50
)

// Config has the properties of a node that its operator chooses. Name is required. The zero value of each other field is the
// default of the kubelet, except that a zero Port publishes no port.
type Config struct {
	// Name of the Node object. [NodeName] derives it from a host name.
	Name string
	// Hostname is the label kubernetes.io/hostname and the address of type Hostname. Empty: Name.
	Hostname string

	// Labels of a new Node object. They override the labels that every node has.
	Labels map[string]string
	// Taints of a new Node object. The taints of an existing Node are not changed.
	Taints []corev1.Taint
	// ProviderID is the ID of the machine at its cloud provider, for spec.providerID. Empty: none.
	ProviderID string
	// ExternalCloudProvider registers the Node with the uninitialized taint, which the cloud controller manager removes, and
	// leaves the addresses to that controller.
	ExternalCloudProvider bool
	// NoControllerAttachDetach omits the annotation that makes the attach-detach controller attach volumes.
	NoControllerAttachDetach bool

	// NodeIPs are the addresses to publish, at most one per IP family. 0.0.0.0 and :: stand for the address of the default route.
	// Empty: the agent chooses as the kubelet does.
	NodeIPs []netip.Addr

	// MaxPods is the largest number of pods. Zero means [DefaultMaxPods].
	MaxPods int
	// PodsPerCore limits the number of pods to PodsPerCore per CPU. Zero: no limit.
	PodsPerCore int
	// Reserved are the resources that pods cannot use.
	Reserved podtree.Reserved
	// NoLocalStorageCapacity omits the resource ephemeral-storage, for a root file system of unknown size.
	NoLocalStorageCapacity bool

	// MaxImages is the number of images in the node status, the largest first. Nil means 50, -1 all.
	MaxImages *int32
	// Port of the kubelet API. Zero: no port is published, and API clients use 10250.
	Port int32
	// DeclaredFeatures are the names for status.declaredFeatures. Nil means [DeclaredFeatures].
	DeclaredFeatures []string

	// OperatingSystem and Architecture are GOOS and GOARCH names. Empty: those of this program.
	OperatingSystem, Architecture string
}

func (c *Config) hostnameOrName() string  { return firstNonEmpty(c.Hostname, c.Name) }
func (c *Config) operatingSystem() string { return firstNonEmpty(c.OperatingSystem, runtime.GOOS) }
func (c *Config) architecture() string    { return firstNonEmpty(c.Architecture, runtime.GOARCH) }

func (c *Config) maxPods() int {
	if c.MaxPods == 0 {
		return DefaultMaxPods
	}
	return c.MaxPods
}

// maxImages returns how many of the node's n images its status lists: at most MaxImages (nil: 50, negative: no limit).
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

// firstNonEmpty returns a, or b if a is empty.
func firstNonEmpty(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
