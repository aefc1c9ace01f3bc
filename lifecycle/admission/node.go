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

// matchesNode reports whether the node matches the pod's node selector and its required node affinity. An invalid affinity term
// matches no node.
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

// hostPort is a port of the node that a pod uses.
type hostPort struct {
	ip       string
	protocol corev1.Protocol
	port     int32
}

// everyIP is the host IP of a port on all addresses of the node. Source: DefaultBindAllHostIP in k8s.io/kube-scheduler.
const everyIP = "0.0.0.0"

// hostPorts yields the host ports of the regular containers and sidecars of a pod. Source: GetHostPorts in pkg/scheduler/util.
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

// portsAreFree reports whether no other pod uses a host port of the pod. A port on all addresses conflicts with any address.
func portsAreFree(pod *corev1.Pod, others []*corev1.Pod) bool {
	taken := map[hostPort]bool{} // each port, and once more with anyIP in place of its address
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

// toleratesTaints reports whether the pod tolerates all NoExecute taints of the node. A static pod tolerates all taints.
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

// isTolerated reports whether one of the tolerations matches the taint. Source: ToleratesTaint in k8s.io/api/core/v1.
func isTolerated(tolerations []corev1.Toleration, taint *corev1.Taint) bool {
	for i := range tolerations {
		t := &tolerations[i]
		if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
			continue
		}
		// Lt and Gt never match: the feature gate of these operators is off by default.
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
