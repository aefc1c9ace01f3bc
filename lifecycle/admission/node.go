// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"iter"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/nodeselector"
	"github.com/seed81659283/nodeagent/qos"
)

// wants reports whether a pod wants such a node, by its node selector and by the affinity that it cannot do without. Terms that
// cannot be understood match nothing.
func matchesNode(pod *corev1.Pod, node *corev1.Node) bool {
	for key, value := range pod.Spec.NodeSelector {
		if have, ok := node.Labels[key]; !ok || have != value {
			return false
		}
	}
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	matches, _ := nodeselector.Match(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, node.Name, node.Labels)
	return matches
}

// hostPort is a port of the node that a pod has for itself.
type hostPort struct {
	ip       string
	protocol corev1.Protocol
	port     int32
}

// everyIP is the address of a port on all addresses of the node. Source: DefaultBindAllHostIP in k8s.io/kube-scheduler.
const everyIP = "0.0.0.0"

// hostPorts yields the ports of the node that a pod has all its life: those of regular containers and sidecars. Source:
// GetHostPorts in pkg/scheduler/util.
func hostPorts(pod *corev1.Pod) iter.Seq[hostPort] {
	return func(yield func(hostPort) bool) {
		for c := range containers.All(&pod.Spec) {
			if c.Kind == containers.Ephemeral || c.Kind == containers.Init && !c.IsSidecar() {
				continue
			}
			for _, p := range c.Ports {
				if p.HostPort > 0 && !yield(hostPort{cmp.Or(p.HostIP, everyIP), cmp.Or(p.Protocol, corev1.ProtocolTCP), p.HostPort}) {
					return
				}
			}
		}
	}
}

// portsAreFree reports whether no other pod has a port of the node that the pod wants. One of all addresses is in the way of one of
// any address, and the other way round.
func portsAreFree(pod *corev1.Pod, others []*corev1.Pod) bool {
	taken := map[hostPort]bool{} // with the address of all for each that has one of its own, too
	const anyIP = "any"
	for _, other := range others {
		for p := range hostPorts(other) {
			taken[p] = true
			taken[hostPort{anyIP, p.protocol, p.port}] = true
		}
	}
	for p := range hostPorts(pod) {
		all := p
		all.ip = anyIP
		if p.ip != everyIP {
			all.ip = everyIP
		}
		if taken[p] || taken[all] {
			return false
		}
	}
	return true
}

// tolerates reports whether a pod tolerates the taints of a node that end pods. Static pods tolerate all.
func toleratesTaints(pod *corev1.Pod, node *corev1.Node) bool {
	if qos.IsStatic(pod) {
		return true
	}
	for i := range node.Spec.Taints {
		if taint := &node.Spec.Taints[i]; taint.Effect == corev1.TaintEffectNoExecute && !isTolerated(pod.Spec.Tolerations, taint) {
			return false
		}
	}
	return true
}

// tolerated reports whether one of the tolerations is about a taint. Comparing values as numbers (operators Lt and Gt) is behind a
// feature gate that is off. Source: ToleratesTaint in k8s.io/api/core/v1.
func isTolerated(tolerations []corev1.Toleration, taint *corev1.Taint) bool {
	for i := range tolerations {
		t := &tolerations[i]
		if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
			continue
		}
		switch t.Operator {
		case "", corev1.TolerationOpEqual:
			if t.Value == taint.Value {
				return true
			}
		case corev1.TolerationOpExists:
			return true
		}
	}
	return false
}
