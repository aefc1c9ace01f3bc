// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What is on a Node object beside what k8s.io/api has names for, as in k8s.io/kubelet and k8s.io/cloud-provider.
const (
	labelBetaOS   = "beta.kubernetes.io/os"
	labelBetaArch = "beta.kubernetes.io/arch"

	// annotationAttachDetach asks the controller of the cluster to attach volumes.
	annotationAttachDetach = "volumes.kubernetes.io/controller-managed-attach-detach"
	// annotationProvidedNodeIP has the node IPs of the configuration, for an external cloud provider.
	annotationProvidedNodeIP = "alpha.kubernetes.io/provided-node-ip"
	// taintUninitialized is removed by an external cloud provider.
	taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
)

// builder is a Build that is going on.
type builder struct {
	in     *Facts
	now    metav1.Time
	node   *corev1.Node
	events []Event
}

// Build returns the Node object that follows from one that the API server had and from what is known now, and the events to emit once the
// API server has it. The answer shares nothing with previous. Only what a node agent owns is set; see [Changed] for what of it is worth a
// request, and [Problems] for what could not be set.
func Build(previous *corev1.Node, in Facts) (*corev1.Node, []Event) {
	b := builder{in: &in, now: in.stamp(), node: previous.DeepCopy()}
	b.setPlatform()
	b.setStatus()
	return b.node, b.events
}

// Initial returns the Node object to create for a node that the API server does not know, and the events to emit once it has been
// created.
func Initial(in Facts) (*corev1.Node, []Event) {
	c := &in.Config
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.Name, Labels: map[string]string{
		corev1.LabelHostname: c.hostname(), corev1.LabelOSStable: c.os(), corev1.LabelArchStable: c.arch(),
		labelBetaOS: c.os(), labelBetaArch: c.arch(),
	}}}
	maps.Copy(node.Labels, c.Labels)
	node.Spec.Taints = slices.Clone(c.Taints)
	if c.ExternalCloudProvider {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: taintUninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule})
	}
	if !c.NoControllerAttachDetach {
		node.Annotations = map[string]string{annotationAttachDetach: "true"}
	}
	node.Spec.ProviderID = c.ProviderID

	b := builder{in: &in, now: in.stamp(), node: node}
	b.setStatus()
	return b.node, b.events
}

// Problems returns what of a Node object could not be found out, a line each. It keeps its old value there.
func FactErrors(previous *corev1.Node, in Facts) []error {
	var errs []error
	if _, err := addresses(&in.Config, in.Host, previous.Status.Addresses); err != nil {
		errs = append(errs, err)
	}
	return errs
}

// setPlatform mends the two labels that schedulers rely on for every node.
func (b *builder) setPlatform() {
	for label, value := range map[string]string{corev1.LabelOSStable: b.in.Config.os(), corev1.LabelArchStable: b.in.Config.arch()} {
		if b.node.Labels[label] == value {
			continue
		}
		if b.node.Labels == nil {
			b.node.Labels = map[string]string{}
		}
		b.node.Labels[label] = value
	}
}

// setStatus is the kubelet's list of setters, in its order (defaultNodeStatusFuncs in pkg/kubelet/kubelet_node_status.go).
func (b *builder) setStatus() {
	b.setAddresses()
	b.setMachine()
	b.setAllocatable()
	b.setVersions()
	b.node.Status.DaemonEndpoints = corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: b.in.Config.Port}}
	b.setImages()
	b.setRuntime()
	b.setConditions()
	if b.in.VolumesKnown {
		b.node.Status.VolumesInUse = slices.Sorted(slices.Values(b.in.VolumesInUse))
	}
	b.setSchedulable()
	b.node.Status.DeclaredFeatures = b.in.Config.declared()
}

// setSchedulable tells of a change of the field, which is somebody else's.
func (b *builder) setSchedulable() {
	switch now := b.node.Spec.Unschedulable; {
	case now && !b.in.Announced.Unschedulable:
		b.becomes(ReasonNotSchedulable)
	case !now && b.in.Announced.Unschedulable:
		b.becomes(ReasonSchedulable)
	}
}

func (b *builder) becomes(reason string) {
	b.events = append(b.events, becomes(b.in.Config.Name, reason))
}
