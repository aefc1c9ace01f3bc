// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"slices"

	"github.com/seed81659283/nodeagent/cri"
)

func statusReport(t *testCase) {
	r, ok := t.rt.(cri.StatusReporter)
	if !ok {
		t.Skip("the runtime is no cri.StatusReporter")
	}
	v, err := r.Version(t.ctx)
	t.Succeed(err, ruleVersion, "Version")
	t.Hold(v.Version == "0.1.0" && v.RuntimeAPIVersion == "v1" && v.RuntimeName != "" && v.RuntimeVersion != "", ruleVersion,
		`Version returns %+v, want version "0.1.0", API version "v1" and a name and version of the runtime`, v)
	s, err := r.Status(t.ctx)
	t.Succeed(err, ruleConditions, "Status")
	for _, typ := range []string{cri.ConditionRuntimeReady, cri.ConditionNetworkReady} {
		c, ok := s.Condition(typ)
		t.Hold(ok, ruleConditions, "Status reports no condition %s", typ)
		t.Hold(c.Status, ruleConditions, "condition %s is false: %s: %s", typ, c.Reason, c.Message)
	}
	_, err = r.CgroupDriver(t.ctx)
	t.Succeed(err, ruleConditions, "CgroupDriver")
}

// statsOfRunning tests that ContainerStats lists a running container. It does not test SandboxStats, which fails in containerd if
// any sandbox has no cgroup parent.
func statsOfRunning(t *testCase) {
	l, ok := t.rt.(cri.StatsLister)
	if !ok {
		t.Skip("the runtime is no cri.StatsLister")
	}
	id := t.startInNewPod(exitsOnTERM(0))
	t.Until(ruleStats, func() (bool, string) {
		all, err := l.ContainerStats(t.ctx)
		t.Succeed(err, ruleStats, "ContainerStats")
		return slices.ContainsFunc(all, func(s cri.ContainerStats) bool { return s.ID == id && s.Name == "main" }),
			"ContainerStats does not show running container " + id
	})
}
