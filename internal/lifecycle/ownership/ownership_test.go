// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/ownership"
)

// pod returns a pod whose sandbox has the first owner. Each further owner has a container.
func pod(owners ...string) *cri.Pod {
	labels := func(owner string) map[string]string {
		if owner == "" {
			return nil
		}
		return map[string]string{ownership.Label: owner}
	}
	p := &cri.Pod{Sandboxes: []cri.Sandbox{{ID: "sandbox of " + owners[0], Labels: labels(owners[0])}}}
	for _, owner := range owners[1:] {
		p.Containers = append(p.Containers, cri.Container{ID: "container of " + owner, Labels: labels(owner)})
	}
	return p
}

func TestMarkOwnsForeignMarkAndFilter(t *testing.T) {
	for _, test := range []struct {
		name    string
		mark    string
		adopts  bool
		pod     *cri.Pod
		owns    bool
		other   string
		foreign bool
		own     int
	}{
		{"all own", "me", false, pod("me", "me"), true, "", false, 2},
		{"foreign container", "me", false, pod("me", "they"), true, "they", true, 1},
		{"foreign sandbox", "me", false, pod("they", "me"), true, "they", true, 1},
		{"container without owner", "me", false, pod("me", ""), true, "", true, 1},
		{"nothing own", "me", false, pod("they", ""), false, "they", true, 0},
		{"adopted container", "me", true, pod("me", ""), true, "", false, 2},
		{"adopted pod", "me", true, pod("", ""), true, "", false, 2},
		{"foreign container in an adopted pod", "me", true, pod("", "they"), true, "they", true, 1},
		{"no mark, foreign container", "", false, pod("", "they"), false, "they", true, 1},
		{"no mark, no owners", "", false, pod("", ""), false, "", false, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			owner := ownership.Owner{Mark: test.mark, AdoptsUnlabeled: test.adopts}
			assert.Equal(t, test.owns, owner.Owns(test.pod))
			other, foreign := owner.ForeignMark(test.pod)
			assert.Equal(t, test.foreign, foreign)
			assert.Equal(t, test.other, other)
			before := len(test.pod.Sandboxes) + len(test.pod.Containers)
			own := owner.Filter(*test.pod)
			assert.Equal(t, test.own, len(own.Sandboxes)+len(own.Containers))
			assert.Equal(t, before, len(test.pod.Sandboxes)+len(test.pod.Containers), "Filter does not modify the pod")
		})
	}
}

func TestSetLabelReplacesLabelOfPod(t *testing.T) {
	forged := map[string]string{ownership.Label: "forged", "app": "web"}
	ownership.Owner{Mark: "me"}.SetLabel(forged)
	assert.Equal(t, map[string]string{ownership.Label: "me", "app": "web"}, forged)

	ownership.Owner{Mark: ""}.SetLabel(forged)
	assert.Equal(t, map[string]string{"app": "web"}, forged, "without a mark the forged owner is removed")
}
