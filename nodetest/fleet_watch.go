// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"crypto/sha256"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/qos"
)

// podRoute is the node that has received a pod, and the UID of the pod.
type podRoute struct {
	node *fleetNode
	uid  string
}

// podChange is a version of a pod, or its removal.
type podChange struct {
	uid string
	pod *corev1.Pod // nil: the API server does not have the pod any more
}

// podRow is the row of a pod in the table of the Fleet. It has the pod until the node has received it: only the nodes keep pods.
type podRow struct{ unrouted *corev1.Pod }

// nodeRow is the row of a Node object, like podRow.
type nodeRow struct{ unrouted *corev1.Node }

// Rows of objects that no node of the Fleet uses. Rows of objects that a node has received are equal to them.
var (
	emptyPodRow  = &podRow{}  //nolint:gochecknoglobals // constant
	emptyNodeRow = &nodeRow{} //nolint:gochecknoglobals // constant
)

// newPodRow returns the row of a pod, without a pod if it is a mirror pod or on another node.
func (f *Fleet) newPodRow(pod *corev1.Pod) *podRow {
	if f.nodes[pod.Spec.NodeName] == nil || qos.IsMirror(pod) {
		return emptyPodRow
	}
	return &podRow{unrouted: f.trimPod(pod)}
}

// newNodeRow returns the row of a Node object, without the object if no node of the Fleet has its name.
func (f *Fleet) newNodeRow(node *corev1.Node) *nodeRow {
	if f.nodes[node.Name] == nil {
		return emptyNodeRow
	}
	return &nodeRow{unrouted: trimNode(node)}
}

// trimPod removes the parts of pod that no node uses, such as the managed fields and the volume of the service account token, and returns it.
func (f *Fleet) trimPod(pod *corev1.Pod) *corev1.Pod {
	pod.ManagedFields, pod.OwnerReferences, pod.GenerateName = nil, nil, ""
	spec := &pod.Spec
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Projected != nil && strings.HasPrefix(v.Name, "kube-api-access-") })
	if spec.TopologySpreadConstraints = nil; spec.Affinity != nil {
		spec.Affinity = &corev1.Affinity{NodeAffinity: spec.Affinity.NodeAffinity}
	}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			list[i].Env, list[i].EnvFrom, list[i].VolumeMounts, list[i].VolumeDevices = nil, nil, nil, nil
		}
	}
	podapi.Default(pod)
	f.specs.share(spec)
	return pod
}

// specSharer has the specs of pods, so that the pods of one template share the memory of their specs. It is safe for concurrent use.
type specSharer struct {
	mu    sync.Mutex
	specs map[[sha256.Size]byte]corev1.PodSpec // by the hash of the spec without the name of the node
}

// Limits of a specSharer: at most 16 MiB, because larger specs are not shared.
const (
	maxSharedSpecs = 1024
	maxSharedSpec  = 16 << 10 // encoded
)

// share replaces the contents of spec by those of an equal spec, if there is one. Equal specs may have different node names.
func (s *specSharer) share(spec *corev1.PodSpec) {
	node := spec.NodeName
	spec.NodeName = ""
	defer func() { spec.NodeName = node }()
	encoded, err := spec.Marshal()
	if err != nil || len(encoded) > maxSharedSpec {
		return
	}
	hash := sha256.Sum256(encoded)
	s.mu.Lock()
	defer s.mu.Unlock()
	if shared, found := s.specs[hash]; found {
		*spec = shared
		return
	}
	if len(s.specs) >= maxSharedSpecs || s.specs == nil {
		s.specs = map[[sha256.Size]byte]corev1.PodSpec{} // the pods keep theirs
	}
	s.specs[hash] = *spec
}

// trimNode removes the managed fields of node, and returns it.
func trimNode(node *corev1.Node) *corev1.Node {
	node.ManagedFields = nil
	return node
}

// routePods passes the changed pods with these keys to their nodes.
func (f *Fleet) routePods(keys ...string) {
	for _, key := range keys {
		row, exists := f.pods.Get(key)
		if exists && row != emptyPodRow && row.unrouted == nil {
			continue // the node has this version
		}
		route, routed := f.routes[key]
		if !exists || row == emptyPodRow {
			if routed {
				delete(f.routes, key)
				route.node.postPod(podChange{uid: route.uid})
			}
			continue
		}
		pod := row.unrouted
		row.unrouted = nil
		if routed && string(pod.UID) != route.uid {
			route.node.postPod(podChange{uid: route.uid})
			routed = false
		}
		if !routed {
			route = podRoute{node: f.nodes[pod.Spec.NodeName], uid: strings.Clone(string(pod.UID))}
			f.routes[strings.Clone(key)] = route
		}
		route.node.postPod(podChange{uid: route.uid, pod: pod})
	}
}

// routeNodes passes the changed Node objects with these names to the nodes.
func (f *Fleet) routeNodes(names ...string) {
	for _, name := range names {
		n := f.nodes[name]
		if n == nil {
			continue
		}
		switch row, exists := f.apiNodes.Get(name); {
		case !exists:
			n.postNode(nil)
		case row.unrouted != nil:
			n.postNode(row.unrouted)
			row.unrouted = nil
		}
	}
}

// inbox has the changes that a node has not received yet. It is safe for concurrent use.
type inbox struct {
	mu      sync.Mutex // guards the fields below
	pods    []podChange
	node    *corev1.Node // last version; nil: deleted
	hasNode bool
}

// postPod passes a change of a pod to the node.
func (n *fleetNode) postPod(change podChange) {
	n.inbox.mu.Lock()
	n.inbox.pods = append(n.inbox.pods, change)
	n.inbox.mu.Unlock()
	n.fleet.wakes.wakeAt(n, n.fleet.clock.now())
}

// postNode passes a version of the Node object to the node; nil: it was deleted.
func (n *fleetNode) postNode(object *corev1.Node) {
	n.inbox.mu.Lock()
	n.inbox.node, n.inbox.hasNode = object, true
	n.inbox.mu.Unlock()
	n.fleet.wakes.wakeAt(n, n.fleet.clock.now())
}

// takeAll returns all changes and empties the inbox. New pods are in the order of their creation, as the kubelet admits them.
func (i *inbox) takeAll() (pods []podChange, node *corev1.Node, hasNode bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	pods, node, hasNode = i.pods, i.node, i.hasNode
	i.pods, i.node, i.hasNode = nil, nil, false
	return pods, node, hasNode
}
