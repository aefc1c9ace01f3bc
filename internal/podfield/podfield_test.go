// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podfield_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/podfield"
)

// Containers and PathOf return the same path for each container of the three lists.
func TestContainersAndPathOfAgree(t *testing.T) {
	e := corev1.EphemeralContainer{}
	e.Name = "e"
	spec := &corev1.PodSpec{
		InitContainers:      []corev1.Container{{Name: "i"}, {Name: "s"}},
		Containers:          []corev1.Container{{Name: "c"}},
		EphemeralContainers: []corev1.EphemeralContainer{e},
	}
	var got []string
	for c := range podfield.Containers(spec) {
		got = append(got, c.Path.String())
		assert.Equal(t, c.Path.String(), podfield.PathOf(spec, c.Name).String())
	}
	assert.Equal(t, []string{
		"spec.initContainers[0]", "spec.initContainers[1]", "spec.containers[0]", "spec.ephemeralContainers[0]",
	}, got)
	assert.Equal(t, "spec.containers[x]", podfield.PathOf(spec, "x").String())
	for c := range podfield.Containers(spec) {
		assert.Equal(t, "i", c.Name)
		break
	}
}

func TestIsPrivileged(t *testing.T) {
	for _, test := range []struct {
		context *corev1.SecurityContext
		want    bool
	}{
		{nil, false},
		{&corev1.SecurityContext{}, false},
		{&corev1.SecurityContext{Privileged: new(bool)}, false},
		{&corev1.SecurityContext{Privileged: new(true)}, true},
	} {
		c := podfield.Container{Container: containers.Container{Container: &corev1.Container{SecurityContext: test.context}}}
		assert.Equal(t, test.want, c.IsPrivileged())
	}
}

func TestSplitSubscript(t *testing.T) {
	for path, want := range map[string][2]string{
		"metadata.labels['a']":      {"metadata.labels", "a"},
		"metadata.labels['a']['b']": {"metadata.labels", "a']['b"},
		"metadata.labels['']":       {"metadata.labels", ""},
		"metadata.labels":           {},
		"metadata.labels[a]":        {},
		"['a']":                     {},
	} {
		name, key, ok := podfield.SplitSubscript(path)
		assert.Equal(t, want != [2]string{}, ok, path)
		if ok {
			assert.Equal(t, want, [2]string{name, key}, path)
		}
	}
}

func TestSysctlName(t *testing.T) {
	for name, want := range map[string]string{
		"net/ipv4/conf/eno2.100/rp_filter": "net.ipv4.conf.eno2/100.rp_filter",
		"net.ipv4.conf.eno2/100.rp_filter": "net.ipv4.conf.eno2/100.rp_filter",
		"kernel":                           "kernel",
		"":                                 "",
	} {
		assert.Equal(t, want, podfield.SysctlName(name))
	}
}

func TestCheckRelativeAndCheckNoBacksteps(t *testing.T) {
	for path, want := range map[string][2]bool{ // results of CheckRelative and CheckNoBacksteps
		"a/b": {true, true}, "a..b": {true, true}, "": {true, true},
		"/a": {false, true}, "a/..": {false, false}, "..": {false, false},
	} {
		assert.Equal(t, want, [2]bool{len(podfield.CheckRelative(path)) == 0, len(podfield.CheckNoBacksteps(path)) == 0}, path)
	}
}

func TestParseAppArmorAnnotation(t *testing.T) {
	for value, want := range map[string]*corev1.AppArmorProfile{
		"runtime/default": {Type: corev1.AppArmorProfileTypeRuntimeDefault},
		"unconfined":      {Type: corev1.AppArmorProfileTypeUnconfined},
		"localhost/a":     {Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: new("a")},
		"x":               nil,
		"":                nil,
	} {
		assert.Equal(t, want, podfield.ParseAppArmorAnnotation(value), value)
	}
}

func TestQuotient(t *testing.T) {
	for _, tt := range []struct{ name, quantity, divisor, want string }{
		{"cpu", "1500m", "0", "2"},
		{"cpu", "1500m", "1m", "1500"},
		{"memory", "1Gi", "1Mi", "1024"},
		{"memory", "1025Ki", "1Mi", "2"},
		{"memory", "0", "1Mi", "0"},
		{"memory", "5", "-1", "5"},
	} {
		got := podfield.Quotient(corev1.ResourceName(tt.name), resource.MustParse(tt.quantity), resource.MustParse(tt.divisor))
		assert.Equal(t, tt.want, got, "%s of %s by %s", tt.name, tt.quantity, tt.divisor)
	}
}
