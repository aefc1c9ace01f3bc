// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"strings"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/device"
)

// partner is a [device.Partner] that can reserve again after Undo(0).
type partner interface {
	device.Partner
	begin() error // before the first call, and before each call after Undo(0)
}

// cpuPartner reserves the CPUs of one pod beside its devices. It implements [device.Partner].
type cpuPartner struct {
	placement   *Placement
	pod         *cpus.Pod
	had         bool // the pod had CPUs before
	reservation *cpus.Reservation
	outcomes    []outcome // of the last reservation for each container, in their order; the last may have an error
	isWholePod  bool      // the hints of the whole pod are merged
	isCommitted bool      // the pod has its CPUs, also if they could not be recorded
}

// outcome is the outcome of the reservation for one container.
type outcome struct {
	nodes device.Mask // of the merged hint
	err   error
}

// begin starts the reservation anew.
func (c *cpuPartner) begin() (err error) {
	c.outcomes = nil
	c.reservation, err = c.placement.allocator.Begin(c.pod)
	return err
}

// Hints implements [device.Partner].
func (c *cpuPartner) Hints(container int) [][]device.Hint {
	var hints []device.Hint
	if c.isWholePod = container == device.WholePod; c.isWholePod {
		hints = c.reservation.PodHints()
	} else {
		hints = c.reservation.Hints(container)
	}
	if hints == nil {
		return nil
	}
	return [][]device.Hint{hints}
}

// Reserve implements [device.Partner].
func (c *cpuPartner) Reserve(container int, affinity device.Hint) error {
	var err error
	switch {
	case !c.isWhole():
		err = c.reservation.Take(container, affinity.Nodes)
	case container == 0:
		err = c.reservation.TakePod(affinity.Nodes)
	}
	c.outcomes = append(c.outcomes[:container], outcome{affinity.Nodes, err})
	return err
}

// isWhole reports whether the CPUs of the pod are reserved as a whole.
func (c *cpuPartner) isWhole() bool { return c.isWholePod && c.placement.opts.Policy.IsPodLevel(c.pod) }

// reportPinnings calls the hook CPUsPinned for each container that was tried and needs exclusive CPUs, or for all containers of a pod whose CPUs are reserved
// as a whole. before is the state before the reservation.
func (c *cpuPartner) reportPinnings(before cpus.State) {
	hook := c.placement.opts.Hooks.CPUsPinned
	if hook == nil {
		return
	}
	after := c.placement.allocator.State()
	if c.isWhole() && len(c.outcomes) > 0 {
		for _, p := range c.placement.opts.Policy.PodPinnings(before, after, c.pod, c.outcomes[0].err) {
			hook(p)
		}
		return
	}
	for i, o := range c.outcomes {
		if p, ok := c.placement.opts.Policy.Pinning(before, after, c.pod, i, o.err); ok {
			hook(p)
		}
	}
}

// explainRefusal returns why the container at which the reservation has ended has no CPUs, or "" if it needs none. If the hints of the whole pod are refused, it
// explains all containers that need CPUs. before is the state before the reservation.
func (c *cpuPartner) explainRefusal(before cpus.State) string {
	policy, state, failed := c.placement.opts.Policy, before, 0
	if c.isWhole() {
		return policy.ExplainPod(before, c.pod)
	}
	for ; failed < len(c.outcomes) && c.outcomes[failed].err == nil; failed++ {
		if next, err := policy.ReserveContainer(state, c.pod, failed, c.outcomes[failed].nodes); err == nil {
			state = next
		}
	}
	last := min(failed+1, len(c.pod.Containers))
	if c.isWholePod && failed == 0 {
		last = len(c.pod.Containers)
	}
	var lines []string
	for i := failed; i < last; i++ {
		if _, needsCPUs := policy.Pinning(state, state, c.pod, i, nil); needsCPUs {
			lines = append(lines, policy.ExplainContainer(state, c.pod, i))
		}
	}
	return strings.Join(lines, ". ")
}

// Undo implements [device.Partner].
func (c *cpuPartner) Undo(from int) {
	c.reservation.Undo(from)
	if c.isCommitted && !c.had && from == 0 {
		c.isCommitted = false
		_ = c.placement.allocator.Release(c.pod.UID) // the CPUs are free; the next change writes the record
	}
}

// Commit implements [device.Partner].
func (c *cpuPartner) Commit() error {
	c.isCommitted = true
	return c.reservation.Commit()
}
