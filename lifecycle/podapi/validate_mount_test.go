// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

func TestDefaultVolumes(t *testing.T) {
	v := podtest.Pod(t, "volumes: [{name: a}, {name: b, image: {reference: i}}, {name: c, image: {reference: 'i:1'}}, {name: d, hostPath: {path: /}}]").Spec.Volumes
	assert.NotNil(t, v[0].EmptyDir)
	assert.Equal(t, corev1.PullAlways, v[1].Image.PullPolicy)
	assert.Equal(t, corev1.PullIfNotPresent, v[2].Image.PullPolicy)
	assert.Nil(t, v[3].EmptyDir)
}

func TestValidateVolumes(t *testing.T) {
	const c = "spec.containers[0]."
	for name, test := range map[string]struct{ volumes, container, want string }{
		"valid":                         {"{name: v}, {name: i, image: {reference: i}}", "volumeMounts: [{name: v, mountPath: /v}, {name: i, mountPath: /i}]", ""},
		"no volume name":                {"{image: {reference: i}}", "", "spec.volumes[0].name: Required value"},
		"volume name":                   {"{name: A}", "", `spec.volumes[0].name: Invalid value: "A"`},
		"duplicate volume":              {"{name: v}, {name: v}", "", `spec.volumes[1].name: Duplicate value: "v"`},
		"two sources":                   {"{name: v, emptyDir: {}, image: {reference: i}}", "", `spec.volumes[0]: Invalid value: "v": must have exactly one source`},
		"no reference":                  {"{name: v, image: {}}", "", "spec.volumes[0].image.reference: Required value"},
		"pull policy":                   {"{name: v, image: {reference: i, pullPolicy: X}}", "", "spec.volumes[0].image.pullPolicy: Unsupported value"},
		"no such volume":                {"", "volumeMounts: [{name: v, mountPath: /v}]", c + `volumeMounts[0].name: Not found: "v"`},
		"no mount name":                 {"", "volumeMounts: [{mountPath: /v}]", c + "volumeMounts[0].name: Required value"},
		"no mount path":                 {"{name: v}", "volumeMounts: [{name: v}]", c + "volumeMounts[0].mountPath: Required value"},
		"duplicate mount path":          {"{name: v}", "volumeMounts: [{name: v, mountPath: /v}, {name: v, mountPath: /v}]", c + `volumeMounts[1].mountPath: Invalid value: "/v": must be unique`},
		"absolute sub path":             {"{name: v}", "volumeMounts: [{name: v, mountPath: /v, subPath: /a}]", c + `volumeMounts[0].subPath: Invalid value: "/a": must be a relative path`},
		"sub path with ..":              {"{name: v}", "volumeMounts: [{name: v, mountPath: /v, subPathExpr: a/../b}]", c + `volumeMounts[0].subPathExpr: Invalid value: "a/../b"`},
		"both sub paths":                {"{name: v}", "volumeMounts: [{name: v, mountPath: /v, subPath: a, subPathExpr: b}]", c + `volumeMounts[0].subPathExpr: Invalid value: "b": may not be set beside subPath`},
		"propagation":                   {"{name: v}", "volumeMounts: [{name: v, mountPath: /v, mountPropagation: X}]", c + "volumeMounts[0].mountPropagation: Unsupported value"},
		"Bidirectional, not privileged": {"{name: v}", "volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]", c + "volumeMounts[0].mountPropagation: Forbidden"},
		"recursive, not read-only":      {"{name: v}", "volumeMounts: [{name: v, mountPath: /v, recursiveReadOnly: Enabled}]", c + "volumeMounts[0].recursiveReadOnly: Forbidden: needs readOnly"},
		"recursive, slave":              {"{name: v}", "volumeMounts: [{name: v, mountPath: /v, readOnly: true, mountPropagation: HostToContainer, recursiveReadOnly: Enabled}]", c + "volumeMounts[0].recursiveReadOnly: Forbidden: needs mountPropagation None"},
		"recursive, mode":               {"{name: v}", "volumeMounts: [{name: v, mountPath: /v, recursiveReadOnly: X}]", c + "volumeMounts[0].recursiveReadOnly: Unsupported value"},
		"options":                       {"{name: v}", "volumeMounts: [{name: v, mountPath: /v, bindMountOptions: [ro]}]", c + `volumeMounts[0].bindMountOptions[0]: Unsupported value: "ro"`},
		"duplicate option":              {"{name: v}", "volumeMounts: [{name: v, mountPath: /v, bindMountOptions: [nodev, nodev]}]", c + `volumeMounts[0].bindMountOptions[1]: Duplicate value: "nodev"`},
		"options of image":              {"{name: v, image: {reference: i}}", "volumeMounts: [{name: v, mountPath: /v, bindMountOptions: [nodev]}]", c + "volumeMounts[0].bindMountOptions: Invalid value"},
		"device":                        {"{name: v, persistentVolumeClaim: {claimName: x}}", "volumeDevices: [{name: v, devicePath: /dev/x}]", ""},
		"device, no volume":             {"", "volumeDevices: [{name: v, devicePath: /dev/x}]", c + `volumeDevices[0].name: Not found: "v"`},
		"device, directory":             {"{name: v}", "volumeDevices: [{name: v, devicePath: /dev/x}]", c + `volumeDevices[0].name: Invalid value: "v": must be of type`},
		"device, no path":               {"{name: v, persistentVolumeClaim: {claimName: x}}", "volumeDevices: [{name: v}]", c + "volumeDevices[0].devicePath: Required value"},
		"device, path with ..":          {"{name: v, persistentVolumeClaim: {claimName: x}}", "volumeDevices: [{name: v, devicePath: /dev/../x}]", c + `volumeDevices[0].devicePath: Invalid value: "/dev/../x"`},
		"device and mount":              {"{name: v, persistentVolumeClaim: {claimName: x}}", "{volumeMounts: [{name: v, mountPath: /v}], volumeDevices: [{name: v, devicePath: /dev/x}]}", c + `volumeDevices[0].name: Invalid value: "v": must be unique`},
	} {
		t.Run(name, func(t *testing.T) {
			fragments := []string{"volumes: [" + test.volumes + "]", test.container}
			if test.container == "" {
				fragments = fragments[:1]
			}
			got := firstError(podapi.Validate(podtest.Pod(t, fragments...)))
			if test.want == "" {
				assert.Empty(t, got)
				return
			}
			assert.True(t, strings.HasPrefix(got, test.want), "got  %s\nwant %s", got, test.want)
		})
	}
}
