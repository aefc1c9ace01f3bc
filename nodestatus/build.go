// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Labels, annotations and a taint of Node objects that k8s.io/api does not define. k8s.io/kubelet and k8s.io/cloud-provider
// define them.
const (
	labelBetaOS   = "beta.kubernetes.io/os"
	labelBetaArch = "beta.kubernetes.io/arch"

	// annotationAttachDetach lets the attach-detach controller attach volumes.
	annotationAttachDetach = "volumes.kubernetes.io/controller-managed-attach-detach"
	// annotationProvidedNodeIP has the configured node IPs, for an external cloud provider.
	annotationProvidedNodeIP = "alpha.kubernetes.io/provided-node-ip"
	// taintUninitialized keeps pods off a new node until the external cloud provider removes it.
	taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
)

// builder has the input and output of one call of Build or Initial.
type builder struct {
	in     *Facts
	now    metav1.Time
	node   *corev1.Node
	events []Event
}

// Build returns the Node object to report: a copy of previous, the Node from the API server, with the fields that a node agent
// owns set from facts. The caller must record the returned events once the API server has accepted the Node.
//
// [Changed] reports whether to send the Node at once. [FactErrors] returns the reasons why fields of previous were kept.
func Build(previous *corev1.Node, facts Facts) (*corev1.Node, []Event) {
	b := builder{in: &facts, now: facts.timestamp(), node: previous.DeepCopy()}
	b.setPlatform()
	b.setStatus()
	return b.node, b.events
}

// Initial returns the Node object for a node that does not exist at the API server yet. The caller must record the returned
// events after creating the Node.
func Initial(facts Facts) (*corev1.Node, []Event) {
	c := &facts.Config
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.Name, Labels: map[string]string{
		corev1.LabelHostname: c.hostnameOrName(), corev1.LabelOSStable: c.operatingSystem(), corev1.LabelArchStable: c.architecture(),
		labelBetaOS: c.operatingSystem(), labelBetaArch: c.architecture(),
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

	b := builder{in: &facts, now: facts.timestamp(), node: node}
	b.setStatus()
	return b.node, b.events
}

// FactErrors returns the errors in facts that make Build keep fields of previous, the existing Node. At present, only node
// addresses can have such errors.
func FactErrors(previous *corev1.Node, facts Facts) []error {
	var errs []error
	if _, err := nodeAddresses(&facts.Config, facts.Host, previous.Status.Addresses); err != nil {
		errs = append(errs, err)
	}
	return errs
}

// setPlatform restores the labels for operating system and architecture, which schedulers rely on, in case another client
// has changed them.
func (b *builder) setPlatform() {
	for label, value := range map[string]string{corev1.LabelOSStable: b.in.Config.operatingSystem(), corev1.LabelArchStable: b.in.Config.architecture()} {
		if b.node.Labels[label] == value {
			continue
		}
		if b.node.Labels == nil {
			b.node.Labels = map[string]string{}
		}
		b.node.Labels[label] = value
	}
}

// setStatus sets all status fields that a node agent owns. Their order is that of defaultNodeStatusFuncs in
// pkg/kubelet/kubelet_node_status.go.
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
	b.addSchedulableEvent()
	b.node.Status.DeclaredFeatures = b.in.Config.declaredFeatures()
}

// addSchedulableEvent adds an event if another client has changed spec.unschedulable since the last recorded event about
// this field.
func (b *builder) addSchedulableEvent() {
	switch now := b.node.Spec.Unschedulable; {
	case now && !b.in.Announced.Unschedulable:
		b.addStatusEvent(ReasonNotSchedulable)
	case !now && b.in.Announced.Unschedulable:
		b.addStatusEvent(ReasonSchedulable)
	}
}

func (b *builder) addStatusEvent(reason string) {
	b.events = append(b.events, newStatusEvent(b.in.Config.Name, reason))
}
