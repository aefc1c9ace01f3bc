// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// maxImageNames limits the number of names per image in the node status. Digests come before tags.
const maxImageNames = 5

// DeclaredFeatures returns the default of Config.DeclaredFeatures: the features of package lifecycle that a pod may require. The
// API server rejects pods that require a feature which the node does not declare.
//
// The kubelet 1.37.1 declares these features by default, and ExtendWebSocketsToKubelet, which an agent must add if it serves the
// kubelet API. Source: k8s.io/component-helpers/nodedeclaredfeatures.
func DeclaredFeatures() []string {
	return []string{
		"InPlacePodLevelResourcesVerticalScaling",
		"InPlacePodVerticalScalingInitContainers",
		"RestartAllContainersOnContainerExits",
	}
}

// declaredFeatures returns the value of status.declaredFeatures, sorted and without duplicates.
func (c *Config) declaredFeatures() []string {
	names := c.DeclaredFeatures
	if names == nil {
		names = DeclaredFeatures()
	}
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}

// setVersions sets the versions of kubelet and container runtime, the operating system and the architecture in status.nodeInfo.
func (b *builder) setVersions() {
	info := &b.node.Status.NodeInfo
	if b.in.Runtime.Name != "" { // the version was read
		info.ContainerRuntimeVersion = b.in.Runtime.nodeVersion()
	}
	info.KubeletVersion = Version
	info.KubeProxyVersion = "" //nolint:staticcheck // a previous agent may have set the deprecated field
	info.OperatingSystem, info.Architecture = b.in.Config.operatingSystem(), b.in.Config.architecture()
}

// setImages sets status.images to the largest images of the runtime. Before the images are read, it keeps the previous
// value.
func (b *builder) setImages() {
	if !b.in.ImagesKnown {
		return
	}
	all := slices.Clone(b.in.Images)
	slices.SortFunc(all, func(a, b cri.Image) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(b.ID, a.ID))
	})
	var images []corev1.ContainerImage
	for _, image := range all[:b.in.Config.maxImages(len(all))] {
		names := slices.Concat(image.RepoDigests, image.RepoTags)
		images = append(images, corev1.ContainerImage{
			Names: names[:min(len(names), maxImageNames)], SizeBytes: int64(min(image.Size, math.MaxInt64)),
		})
	}
	b.node.Status.Images = images
}

// setRuntime sets the handlers and features of the runtime. Before the runtime is ready for the first time, it keeps the
// previous values.
func (b *builder) setRuntime() {
	r := &b.in.Runtime
	if r.LastReady.IsZero() {
		return
	}
	handlers := make([]corev1.NodeRuntimeHandler, 0, len(r.Handlers))
	for _, h := range r.Handlers {
		handlers = append(handlers, corev1.NodeRuntimeHandler{Name: h.Name, Features: &corev1.NodeRuntimeHandlerFeatures{
			RecursiveReadOnlyMounts: new(h.RecursiveReadOnlyMounts), UserNamespaces: new(h.UserNamespaces),
		}})
	}
	b.node.Status.RuntimeHandlers = handlers
	b.node.Status.Features = &corev1.NodeFeatures{SupplementalGroupsPolicy: new(r.Features.SupplementalGroupsPolicy)}
}

// setMachine sets the properties of the machine in status.nodeInfo and status.capacity. It keeps values that were not read.
func (b *builder) setMachine() {
	if b.node.Status.Capacity == nil {
		b.node.Status.Capacity = corev1.ResourceList{}
	}
	m, info := &b.in.Machine, &b.node.Status.NodeInfo
	for _, field := range []struct {
		into  *string
		value string
	}{
		{&info.MachineID, m.MachineID},
		{&info.SystemUUID, m.SystemUUID},
		{&info.KernelVersion, m.KernelVersion},
		{&info.OSImage, m.OSImage},
	} {
		*field.into = firstNonEmpty(field.value, *field.into)
	}
	b.setBootID()
	if m.Swap > 0 {
		info.Swap = &corev1.NodeSwapStatus{Capacity: new(m.Swap)}
	}
	if m.UserNS != nil {
		info.RunningInUserNamespace = new(*m.UserNS)
	}
	b.setCapacity()
}

// setBootID sets status.nodeInfo.bootID. If the boot ID has changed, the machine was rebooted, and it adds an event.
func (b *builder) setBootID() {
	info, id := &b.node.Status.NodeInfo, b.in.Machine.BootID
	if id == "" {
		return
	}
	if info.BootID != "" && info.BootID != id && !b.in.Announced.Rebooted {
		b.events = append(b.events, Event{
			Type: corev1.EventTypeWarning, Reason: ReasonRebooted,
			Message: fmt.Sprintf("Node %s has been rebooted, boot id: %s", b.in.Config.Name, id),
		})
	}
	info.BootID = id
}
