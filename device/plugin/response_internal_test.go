// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Any message is converted to valid paths, permissions and names, or refused.
func FuzzConvertResponse(f *testing.F) {
	seed, err := proto.Marshal(&api.ContainerAllocateResponse{
		Envs: map[string]string{"A": "b"}, Annotations: map[string]string{"k": "v"},
		Mounts:     []*api.Mount{{ContainerPath: "/a//", HostPath: "/b"}, {ContainerPath: "/a", HostPath: "/b"}},
		Devices:    []*api.DeviceSpec{{ContainerPath: "/dev/a", HostPath: "/dev/b/.", Permissions: "rw"}},
		CdiDevices: []*api.CDIDevice{{Name: "v/c=n"}},
	})
	require.NoError(f, err)
	f.Add(seed)
	f.Fuzz(func(t *testing.T, message []byte) {
		var stored api.ContainerAllocateResponse
		if proto.Unmarshal(message, &stored) != nil {
			return
		}
		response, err := convertResponse(&stored)
		if err != nil {
			return
		}
		requirePath := func(p string) {
			require.True(t, path.IsAbs(p) && path.Clean(p) == p && !strings.ContainsRune(p, 0), "%q", p)
		}
		seen := map[string]bool{}
		for _, m := range response.Mounts {
			requirePath(m.ContainerPath)
			requirePath(m.HostPath)
			require.False(t, seen[m.ContainerPath])
			seen[m.ContainerPath] = true
		}
		for _, d := range response.Devices {
			requirePath(d.ContainerPath)
			requirePath(d.HostPath)
			require.Regexp(t, "^[rwm]{1,3}$", d.Permissions)
		}
		for _, name := range response.CDIDevices {
			require.Regexp(t, `^[^ ]+/[^ ]+=[^ ]+$`, name)
		}
	})
}
