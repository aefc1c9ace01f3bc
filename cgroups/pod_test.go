// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed81659283/nodeagent/cgroups"
)

func TestPodPathIsBelowClass(t *testing.T) {
	for _, root := range []cgroups.Path{"", "agent", "agent/inner"} {
		for class, dir := range map[cgroups.QOS]cgroups.Path{
			cgroups.Guaranteed: "kubepods",
			cgroups.Burstable:  "kubepods/burstable",
			cgroups.BestEffort: "kubepods/besteffort",
			"":                 "kubepods/besteffort",
		} {
			want := dir
			if root != "" {
				want = root + "/" + dir
			}
			assert.Equal(t, want, cgroups.QOSPath(root, class))
			p := cgroups.PodPath(root, class, "1234-ab")
			assert.Equal(t, want+"/pod1234-ab", p)

			uid, ok := cgroups.PodUID(root, p)
			assert.True(t, ok, p)
			assert.Equal(t, "1234-ab", uid)
		}
	}
	assert.Error(t, cgroups.PodPath("", cgroups.Burstable, "../../system").Validate())
	assert.Error(t, cgroups.PodPath("", cgroups.Burstable, "a/b").Validate())
}

func TestPodUIDRejectsOtherPaths(t *testing.T) {
	for path, why := range map[cgroups.Path]string{
		"":                              "the root",
		"pod1":                          "not below kubepods",
		"kubepods":                      "not a pod",
		"kubepods/burstable":            "a class",
		"kubepods/pod":                  "no UID",
		"kubepods/burstable/apod1":      "another prefix",
		"kubepods/podthis-has-pod":      "pod prefix twice, which the kubelet finds too",
		"system/podX":                   "another parent, which the kubelet does not compare",
		"kubepods/other/pod1":           "no class",
		"kubepods/pod1/container.scope": "inside a pod",
		"kubepods/pod1/pod2":            "inside a pod",
		"agent/kubepods/pod1":           "another root",
	} {
		uid, ok := cgroups.PodUID("", path)
		assert.False(t, ok, "%s: %s", path, why)
		assert.Empty(t, uid)
	}
	for _, path := range []cgroups.Path{"kubepods/pod1", "agents/kubepods/pod1", "agent", "agent/pod1"} {
		_, ok := cgroups.PodUID("agent", path)
		assert.False(t, ok, path)
	}
}
