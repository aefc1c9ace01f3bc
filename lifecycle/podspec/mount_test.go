// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"errors"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// launch returns a Launch with the volumes "v" with a directory, "ro" which is read-only, "image" and "block".
func launch() podspec.Launch {
	return podspec.Launch{
		Volumes: map[string]podspec.Volume{
			"v":     {HostPath: "/pods/v", SELinuxRelabel: true},
			"ro":    {HostPath: "/pods/ro", ReadOnly: true},
			"image": {Image: &cri.ImageSpec{Image: "sha256:1", UserSpecifiedImage: "data:1"}},
			"block": {Device: "/dev/loop0"},
		},
		SubPath: func(_ int, v podspec.Volume, subPath string) (string, error) {
			if subPath == "bad" {
				return "", errors.New("leads out of the volume")
			}
			return path.Join(v.HostPath, subPath), nil
		},
	}
}

func TestMounts(t *testing.T) {
	able := podspec.Options{RuntimeHandlers: handlers(cri.RuntimeHandler{RecursiveReadOnlyMounts: true}), SELinux: true}
	for name, c := range map[string]struct {
		mount   string
		options podspec.Options
		want    cri.Mount
	}{
		"writable":         {"name: v, mountPath: /v", podspec.Options{}, cri.Mount{ContainerPath: "/v", HostPath: "/pods/v"}},
		"relative":         {"name: v, mountPath: v", podspec.Options{}, cri.Mount{ContainerPath: "/v", HostPath: "/pods/v"}},
		"read-only":        {"name: v, mountPath: /v, readOnly: true", podspec.Options{}, cri.Mount{ContainerPath: "/v", HostPath: "/pods/v", ReadOnly: true}},
		"read-only volume": {"name: ro, mountPath: /v", podspec.Options{}, cri.Mount{ContainerPath: "/v", HostPath: "/pods/ro", ReadOnly: true}},
		"SELinux":          {"name: v, mountPath: /v", able, cri.Mount{ContainerPath: "/v", HostPath: "/pods/v", SELinuxRelabel: true}},
		"image": {
			"name: image, mountPath: /v",
			podspec.Options{},
			cri.Mount{ContainerPath: "/v", ReadOnly: true, Image: &cri.ImageSpec{Image: "sha256:1", UserSpecifiedImage: "data:1"}},
		},
		"sub path of an image": {
			"name: image, mountPath: /v, subPath: a/b",
			podspec.Options{},
			cri.Mount{ContainerPath: "/v", ReadOnly: true, Image: &cri.ImageSpec{Image: "sha256:1", UserSpecifiedImage: "data:1"}, ImageSubPath: "a/b"},
		},
		"sub path":            {"name: v, mountPath: /v, subPath: a/b", podspec.Options{}, cri.Mount{ContainerPath: "/v", HostPath: "/pods/v/a/b"}},
		"sub path expression": {"name: v, mountPath: /v, subPathExpr: $(NAME)/$$(x)", podspec.Options{}, cri.Mount{ContainerPath: "/v", HostPath: "/pods/v/web/$(x)"}},
		"slave":               {"name: v, mountPath: /v, mountPropagation: HostToContainer", podspec.Options{}, cri.Mount{ContainerPath: "/v", HostPath: "/pods/v", Propagation: cri.PropagationHostToContainer}},
		"shared":              {"name: v, mountPath: /v, mountPropagation: Bidirectional", podspec.Options{}, cri.Mount{ContainerPath: "/v", HostPath: "/pods/v", Propagation: cri.PropagationBidirectional}},
		"private":             {"name: v, mountPath: /v, mountPropagation: None", podspec.Options{}, cri.Mount{ContainerPath: "/v", HostPath: "/pods/v"}},
		"options":             {"name: v, mountPath: /v, bindMountOptions: [noexec]", podspec.Options{}, cri.Mount{ContainerPath: "/v", HostPath: "/pods/v", Options: []string{"noexec"}}},
		"recursive read-only": {
			"name: ro, mountPath: /v, readOnly: true, recursiveReadOnly: Enabled", able,
			cri.Mount{ContainerPath: "/v", HostPath: "/pods/ro", ReadOnly: true, RecursiveReadOnly: true},
		},
		"IfPossible with runtime support": {
			"name: ro, mountPath: /v, readOnly: true, recursiveReadOnly: IfPossible, mountPropagation: None", able,
			cri.Mount{ContainerPath: "/v", HostPath: "/pods/ro", ReadOnly: true, RecursiveReadOnly: true},
		},
		"IfPossible without runtime support": {
			"name: ro, mountPath: /v, readOnly: true, recursiveReadOnly: IfPossible",
			podspec.Options{},
			cri.Mount{ContainerPath: "/v", HostPath: "/pods/ro", ReadOnly: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := podtest.Pod(t, "volumes: [{name: v}, {name: ro}, {name: image, image: {reference: 'data:1'}}]",
				"{securityContext: {privileged: true}, env: [{name: NAME, value: web}], volumeMounts: [{"+c.mount+"}]}")
			require.Empty(t, podapi.Validate(p))
			assert.Empty(t, cmp.Diff([]cri.Mount{c.want}, container(t, p, launch(), c.options).Mounts))
		})
	}
}

func TestContainerRefusesInvalidMounts(t *testing.T) {
	for mount, want := range map[string]string{
		"name: x, mountPath: /v":                                                                                     `name: Not found: "x"`,
		"name: block, mountPath: /v":                                                                                 `name: Not found: "block"`,
		"name: v, mountPath: /v, subPath: bad":                                                                       `subPath: Invalid value: "bad": leads out of the volume`,
		"name: v, mountPath: /v, subPath: ../x":                                                                      `subPath: Invalid value: "../x": must not contain '..'`,
		"name: v, mountPath: /v, subPathExpr: $(B)/$(A)/$(EMPTY)/$(A)":                                               `subPathExpr: Invalid value: "$(B)/$(A)/$(EMPTY)/$(A)": has no value for A, B, EMPTY`,
		"name: v, mountPath: /v, subPathExpr: a/$(UP)":                                                               `subPathExpr: Invalid value: "a/..": must not contain '..'`,
		"name: v, mountPath: /v, subPathExpr: $(ROOT)":                                                               `subPathExpr: Invalid value: "/": must be a relative path`,
		"name: image, mountPath: /v, subPathExpr: $(UP)":                                                             `subPathExpr: Invalid value: "..": must not contain '..'`,
		"name: v, mountPath: /v, mountPropagation: X":                                                                `mountPropagation: Unsupported value: "X"`,
		"name: v, mountPath: /v, readOnly: true, recursiveReadOnly: Enabled":                                         `recursiveReadOnly: Invalid value: "Enabled": is not supported by the runtime`,
		"name: v, mountPath: /v, recursiveReadOnly: IfPossible":                                                      `recursiveReadOnly: Invalid value: "IfPossible": needs readOnly`,
		"name: v, mountPath: /v, readOnly: true, recursiveReadOnly: X":                                               `recursiveReadOnly: Unsupported value: "X"`,
		"{name: v, mountPath: /v, readOnly: true, recursiveReadOnly: IfPossible, mountPropagation: HostToContainer}": `recursiveReadOnly: Invalid value`,
	} {
		p := podtest.Pod(t, "", "{env: [{name: EMPTY}, {name: UP, value: ..}, {name: ROOT, value: /}], volumeMounts: [{"+strings.Trim(mount, "{}")+"}]}")
		_, err := podspec.Container(p, &p.Spec.Containers[0], launch(), podspec.Options{})
		if assert.Error(t, err, mount) {
			want = "spec.containers[0].volumeMounts[0]." + want
			assert.True(t, strings.HasPrefix(err.Error(), want), "got  %s\nwant %s", err, want)
		}
	}
	l := launch()
	l.SubPath = nil
	p := podtest.Pod(t, "", "volumeMounts: [{name: v, mountPath: /v, subPath: a}]")
	_, err := podspec.Container(p, &p.Spec.Containers[0], l, podspec.Options{})
	assert.EqualError(t, err, "spec.containers[0].volumeMounts[0].subPath: Forbidden: paths within volumes are not supported on this node")
}

func TestContainerOrdersMounts(t *testing.T) {
	l := launch()
	l.PodIPs, l.HostsPath, l.TerminationLogPath = []string{"10.0.0.2"}, "/pods/hosts", "/pods/c/1"
	l.Mounts = []cri.Mount{{ContainerPath: "/driver", HostPath: "/opt/driver"}}
	p := podtest.Pod(t, "", "volumeMounts: [{name: v, mountPath: /b}, {name: ro, mountPath: /a}]")
	assert.Empty(t, cmp.Diff([]cri.Mount{
		{ContainerPath: "/driver", HostPath: "/opt/driver"},
		{ContainerPath: "/b", HostPath: "/pods/v", SELinuxRelabel: true},
		{ContainerPath: "/a", HostPath: "/pods/ro", ReadOnly: true},
		{ContainerPath: "/etc/hosts", HostPath: "/pods/hosts", SELinuxRelabel: true},
		{ContainerPath: "/dev/termination-log", HostPath: "/pods/c/1", SELinuxRelabel: true},
	}, container(t, p, l, podspec.Options{SELinux: true}).Mounts))
	assert.Len(t, l.Mounts, 1, "Container does not modify the launch")
}

func TestDevices(t *testing.T) {
	l := launch()
	l.Devices = []cri.Device{{ContainerPath: "/dev/gpu", HostPath: "/dev/gpu0", Permissions: "rw"}}
	l.CDIDevices = []string{"vendor.com/gpu=0"}
	p := podtest.Pod(t, "", "volumeDevices: [{name: block, devicePath: /dev/x}]")
	c := container(t, p, l, podspec.Options{})
	want := []cri.Device{l.Devices[0], {ContainerPath: "/dev/x", HostPath: "/dev/loop0", Permissions: "mrw"}}
	assert.Equal(t, want, c.Devices)
	assert.Equal(t, []string{"vendor.com/gpu=0"}, c.CDIDevices)

	l.Volumes["block"] = podspec.Volume{Device: "/dev/loop0", ReadOnly: true}
	assert.Equal(t, "r", container(t, p, l, podspec.Options{}).Devices[1].Permissions)
	for device, want := range map[string]string{
		"name: v, devicePath: /dev/x":    `spec.containers[0].volumeDevices[0].name: Not found: "v"`,
		"name: block, devicePath: dev/x": `spec.containers[0].volumeDevices[0].devicePath: Invalid value: "dev/x": must be an absolute path`,
	} {
		p := podtest.Pod(t, "", "volumeDevices: [{"+device+"}]")
		_, err := podspec.Container(p, &p.Spec.Containers[0], l, podspec.Options{})
		assert.EqualError(t, err, want)
	}
}
