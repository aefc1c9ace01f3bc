// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/seed81659283/nodeagent/eviction/podevict"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/admission"
)

// admit connects what decides whether a pod may run, in the kubelet's order: the shutdown of the machine, the pressure of the node, then the
// Node object and the room on it. Options.Admit is asked before all of them.
func (a *Agent) admit(o *lifecycle.Options) error {
	checks := []lifecycle.Admit{a.options.Admit}
	if err := a.makeInhibitor(); err != nil {
		return err
	}
	if a.inhibitor != nil {
		checks = append(checks, a.refuseInShutdown)
	}
	checks = append(checks, o.Admit) // nothing is started on a node under pressure
	if a.cluster != nil {
		preemptor, err := podevict.NewPreemptor(podevict.PreemptorOptions{
			Node: a.node.Node, Pods: &a.pods, Event: a.event, Preempted: a.meter.Preempted,
		})
		if err != nil {
			return err
		}
		checks = append(checks, preemptor.Admit)
		o.AdmitsByNode, o.AdmitResize = true, preemptor.AdmitResize
	}
	o.Admit = admission.Chain(checks...)
	return nil
}
