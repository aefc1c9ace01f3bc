// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/internal/lifecycle/executor"
	"github.com/seed81659283/nodeagent/internal/memimage"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// An idle node only renews its lease and reports its status now and then. Until it receives a change, the memory of its pods, containers, cgroups,
// processes, options and of its Node object is packed into an image. The node has no events then: nodes with probes or usage curves are never packed.

// packAfter is how long a node is idle until its memory is packed. A Deployment that grows changes a node every few seconds.
const packAfter = 5 * time.Second

// newNodePacker returns the packer of the nodes of a Fleet.
func newNodePacker() *memimage.Packer {
	return memimage.NewPacker(reflect.TypeFor[*Loop](), reflect.TypeFor[*fleetNode](), reflect.TypeFor[*executor.Node](), reflect.TypeFor[*eviction.Policy]())
}

// planPack packs the memory of the node if it has been idle for long enough. It returns when to check again; zero means after a change. The node
// must have no events.
func (n *fleetNode) planPack(now time.Time) (next time.Time) {
	if n.unpackable || n.fleet.packAfter < 0 || !n.isPackable() {
		return time.Time{}
	}
	if due := n.idleSince.Add(n.fleet.packAfter); now.Before(due) {
		return due
	}
	if n.image = n.packVariables(n.listPacked()); n.image == nil {
		return time.Time{}
	}
	n.unsent, n.loop.queue.events = nil, nil // they are empty
	n.fleet.settled.recordPack(n.changed)
	n.changed = false
	return n.planReportPack(now)
}

// planReportPack packs the Node object if it has not changed for long enough. It returns when its report is due, or when to check again; zero means
// after a change.
func (n *fleetNode) planReportPack(now time.Time) (next time.Time) {
	if n.unpackable || n.object.busy || n.object.reportDue || n.object.server == nil {
		return time.Time{}
	}
	if due := n.idleSince.Add(n.fleet.packAfter); now.Before(due) {
		return due
	}
	if n.report = n.packVariables(n.listPackedReport()); n.report == nil {
		return time.Time{}
	}
	return n.object.nextStep()
}

// packVariables returns an image of variables of the node. If it cannot be created, packVariables returns nil, and the node is not packed any more.
func (n *fleetNode) packVariables(variables []any) *memimage.Image {
	image, err := n.fleet.packer.Pack(variables...)
	if err != nil { // an image is an optimization only
		n.unpackable = true
		n.fleet.logger.Debug("pack the memory of an idle node", "node", n.name, "error", err)
	}
	return image
}

// listPacked returns the variables that the image of an idle node has. Nothing else refers to their memory while isPackable returns true.
func (n *fleetNode) listPacked() []any {
	l := n.loop
	return []any{
		&n.pods, &l.options, &l.pods, &l.byUID, &l.containers.byID, &l.evictor.layout, &l.evictor.summary, &l.kernel.processes, l.kernel.machine,
	}
}

// listPackedReport returns the variables with which a node reports its status. The pods refer to none of their memory.
func (n *fleetNode) listPackedReport() []any { return []any{&n.object.server, &n.loop.setup} }

// unpack restores the packed memory of the node, if there is any.
func (n *fleetNode) unpack() {
	n.unpackReport()
	if n.image != nil {
		n.image.Restore()
		n.image = nil
		n.fleet.settled.recordUnpack()
	}
}

// unpackReport restores the Node object and the setup, if they are packed.
func (n *fleetNode) unpackReport() {
	if n.report != nil {
		n.report.Restore()
		n.report = nil
	}
}

// stepPacked does the work of step for a node whose pods are packed and have not changed. object is the new version of the Node object if hasObject is
// true.
func (n *fleetNode) stepPacked(object *corev1.Node, hasObject bool, now time.Time) (next time.Time) {
	if due := n.object.nextStep(); n.report != nil && !hasObject && now.Before(due) {
		return sleep.Earlier(due, n.planLease(now))
	}
	if n.unpackReport(); hasObject {
		n.idleSince = now
		n.receiveObject(object, now)
	}
	next = sleep.Earlier(n.planObject(now), n.planLease(now))
	return sleep.Earlier(next, n.planReportPack(now))
}

// isPackable reports whether no request and no function refers to the memory of listPacked, and nothing changes it before the node receives a change or
// reports its status.
func (n *fleetNode) isPackable() bool {
	l := n.loop
	if len(l.queue.events) > 0 || len(n.unsent) > 0 || len(l.delayed) > 0 || n.object.busy || n.object.reportDue || n.object.server == nil || !l.kernel.isIdle() {
		return false
	}
	for _, p := range n.pods {
		if p.busy || !p.loop.isPackable() {
			return false
		}
	}
	return true
}

// isPackable reports whether the pod waits for nothing, and no function refers to it.
func (p *loopPod) isPackable() bool {
	if !p.isSettled() || len(p.onEvicted)+len(p.clean)+len(p.probes.targets)+len(p.probes.states) > 0 {
		return false
	}
	for _, c := range p.containers {
		if len(c.onExit) > 0 {
			return false
		}
	}
	return true
}

// settledNodes counts the nodes whose memory is packed. It is safe for concurrent use.
type settledNodes struct {
	mu      sync.Mutex // guards the fields below
	packed  int        // nodes with an image
	changed int        // nodes that were packed after changes of their pods, since takeReport has returned true
}

// recordPack counts a packed node. changed is true if its pods have changed since it was packed last.
func (s *settledNodes) recordPack(changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.packed++; changed {
		s.changed++
	}
}

// recordUnpack counts a node that is not packed any more.
func (s *settledNodes) recordUnpack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.packed--
}

// takeReport reports whether the Fleet has settled since takeReport has returned true before: nine tenths of all nodes are packed, a tenth of them
// newly.
func (s *settledNodes) takeReport(nodes int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == 0 || s.changed*10 < nodes || s.packed*10 < nodes*9 {
		return false
	}
	s.changed = 0
	return true
}
