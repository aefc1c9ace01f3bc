// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lacking_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/internal/lifecycle/lacking"
)

// A pod that needs every feature gets one error per missing feature, and none if all are available.
func TestCheckPodReportsMissingFeatures(t *testing.T) {
	probe, no := &corev1.Probe{}, false
	limits := func(names ...corev1.ResourceName) (r corev1.ResourceRequirements) {
		r.Limits = corev1.ResourceList{}
		for _, name := range names {
			r.Limits[name] = resource.MustParse("1")
		}
		return r
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{StartupProbe: probe, Resources: limits("example.com/gpu")}},
		Containers:     []corev1.Container{{ReadinessProbe: probe, LivenessProbe: probe, Resources: limits("cpu", "example.com/nic", "example.com/gpu")}},
		Volumes: []corev1.Volume{
			{VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{}}},
			{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		},
		HostAliases: []corev1.HostAlias{{IP: "10.0.0.1"}},
		HostUsers:   &no,

		NodeSelector: map[string]string{"zone": "a"},
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{},
		}},
	}}
	all := lacking.Features{Probes: true, Images: true, Volumes: true, Devices: true, HostsFiles: true, UserNamespaces: true, Admission: true}
	without := func(take func(*lacking.Features)) lacking.Features {
		p := all
		take(&p)
		return p
	}
	for _, test := range []struct {
		name   string
		parts  lacking.Features
		fields []string
	}{
		{"all parts", all, nil},
		{"no probes", without(func(p *lacking.Features) { p.Probes = false }), []string{
			"spec.initContainers[0].startupProbe", "spec.containers[0].readinessProbe", "spec.containers[0].livenessProbe",
		}},
		{"no images", without(func(p *lacking.Features) { p.Images = false }), []string{"spec.volumes[0].image"}},
		{"no volumes", without(func(p *lacking.Features) { p.Volumes = false }), []string{"spec.volumes[1]"}},
		{"no devices", without(func(p *lacking.Features) { p.Devices = false }), []string{
			"spec.initContainers[0].resources.limits[example.com/gpu]",
			"spec.containers[0].resources.limits[example.com/gpu]", "spec.containers[0].resources.limits[example.com/nic]",
		}},
		{"no hosts files", without(func(p *lacking.Features) { p.HostsFiles = false }), []string{"spec.hostAliases"}},
		{"no user namespaces", without(func(p *lacking.Features) { p.UserNamespaces = false }), []string{"spec.hostUsers"}},
		{"no admission", without(func(p *lacking.Features) { p.Admission = false }), []string{"spec.nodeSelector", "spec.affinity"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var fields []string
			for _, err := range test.parts.CheckPod(pod) {
				fields = append(fields, err.Field)
			}
			assert.Equal(t, test.fields, fields)
			assert.Empty(t, test.parts.CheckPod(&corev1.Pod{}), "a pod without special features has no errors")
		})
	}
}
