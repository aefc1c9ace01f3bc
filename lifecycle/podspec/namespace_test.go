// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

func ids(m cri.IDMapping, err error) func(*corev1.Pod) (cri.IDMapping, error) {
	return func(*corev1.Pod) (cri.IDMapping, error) { return m, err }
}

func TestUserNamespace(t *testing.T) {
	p := podtest.Pod(t, "hostUsers: false", "securityContext: {procMount: Unmasked}")
	require.Empty(t, podapi.Validate(p))
	m := cri.IDMapping{HostID: 131072, Length: 65536}
	o := podspec.Options{UserNamespace: ids(m, nil), RuntimeHandlers: handlers(cri.RuntimeHandler{Name: "x"}, cri.RuntimeHandler{UserNamespaces: true})}
	want := cri.NamespaceOptions{
		PID:  cri.NamespaceContainer,
		User: &cri.UserNamespace{Mode: cri.NamespacePod, UIDs: []cri.IDMapping{m}, GIDs: []cri.IDMapping{m}},
	}
	assert.Equal(t, want, sandbox(t, p, o).Security.Namespaces)
	l := podspec.Launch{PodIPs: []string{"10.0.0.2"}, HostsPath: "/hosts", TerminationLogPath: "/log", Mounts: []cri.Mount{{HostPath: "/opt"}}}
	c := container(t, p, l, o)
	assert.Equal(t, want, c.Security.Namespaces)
	assert.Empty(t, c.Security.MaskedPaths)
	require.Len(t, c.Mounts, 3)
	for _, mount := range c.Mounts {
		assert.Equal(t, []cri.IDMapping{m}, mount.UIDMappings, mount.HostPath)
		assert.Equal(t, []cri.IDMapping{m}, mount.GIDMappings, mount.HostPath)
	}
	l = podspec.Launch{Mounts: []cri.Mount{{HostPath: "/opt"}}}
	assert.Equal(t, []cri.IDMapping{m}, container(t, p, l, o).Mounts[0].UIDMappings)
	assert.Nil(t, l.Mounts[0].UIDMappings, "Container does not modify the launch")

	able := handlers(cri.RuntimeHandler{UserNamespaces: true})
	for want, o := range map[string]podspec.Options{
		"this node has no user namespaces":                           {RuntimeHandlers: able},
		`the runtime has no user namespaces with handler ""`:         {UserNamespace: ids(m, nil)},
		"no range is free":                                           {UserNamespace: ids(m, errors.New("no range is free")), RuntimeHandlers: able},
		"65536 IDs from 0 of the pod to 0 of the host: want":         {UserNamespace: ids(cri.IDMapping{Length: 65536}, nil), RuntimeHandlers: able},
		"65535 IDs from 0 of the pod to 131072 of the host: want":    {UserNamespace: ids(cri.IDMapping{HostID: 131072, Length: 65535}, nil), RuntimeHandlers: able},
		"65536 IDs from 1 of the pod to 131072 of the host: want at": {UserNamespace: ids(cri.IDMapping{HostID: 131072, ContainerID: 1, Length: 65536}, nil), RuntimeHandlers: able},
	} {
		_, err := podspec.Sandbox(p, 0, o)
		assert.ErrorContains(t, err, "spec.hostUsers: Invalid value: false: "+want)
		_, err = podspec.Container(p, &p.Spec.Containers[0], podspec.Launch{}, o)
		assert.ErrorContains(t, err, want)
	}
}

func TestEphemeralContainerUsesPIDNamespaceOfTarget(t *testing.T) {
	const ephemeral = "ephemeralContainers: [{name: e, image: i, targetContainerName: c}, {name: free, image: i}]"
	ephemeralContainer := func(p *corev1.Pod, i int) *corev1.Container {
		return (*corev1.Container)(&p.Spec.EphemeralContainers[i].EphemeralContainerCommon)
	}
	p := podtest.Pod(t, ephemeral)
	got, err := podspec.Container(p, ephemeralContainer(p, 0), podspec.Launch{TargetID: "id1"}, podspec.Options{})
	require.NoError(t, err)
	assert.Equal(t, cri.NamespaceTarget, got.Security.Namespaces.PID)
	assert.Equal(t, "id1", got.Security.Namespaces.TargetID)

	_, err = podspec.Container(p, ephemeralContainer(p, 0), podspec.Launch{}, podspec.Options{})
	assert.EqualError(t, err, `spec.ephemeralContainers[0].targetContainerName: Not found: "c"`)
	got, err = podspec.Container(p, ephemeralContainer(p, 1), podspec.Launch{}, podspec.Options{})
	require.NoError(t, err)
	assert.Equal(t, cri.NamespaceContainer, got.Security.Namespaces.PID)

	p = podtest.Pod(t, "{shareProcessNamespace: true, "+ephemeral+"}")
	got, err = podspec.Container(p, ephemeralContainer(p, 0), podspec.Launch{TargetID: "id1"}, podspec.Options{})
	require.NoError(t, err)
	assert.Equal(t, cri.NamespacePod, got.Security.Namespaces.PID, "all containers share the PID namespace of the pod")
}

func TestSupplementalGroupsIncludeVolumeGroups(t *testing.T) {
	p := podtest.Pod(t, "securityContext: {fsGroup: 1, supplementalGroups: [2]}")
	o := podspec.Options{VolumeGroups: func(*corev1.Pod) []int64 { return []int64{3} }}
	assert.Equal(t, []int64{1, 3, 2}, sandbox(t, p, o).Security.SupplementalGroups)
	assert.Equal(t, []int64{1, 2, 3}, container(t, p, podspec.Launch{}, o).Security.SupplementalGroups)
}

func TestSandboxIsPrivilegedIfAnyContainerIs(t *testing.T) {
	for _, list := range []string{"initContainers", "containers", "ephemeralContainers"} {
		p := podtest.Pod(t, list+": [{name: x, image: i, securityContext: {privileged: true}}]")
		assert.True(t, sandbox(t, p, podspec.Options{}).Security.Privileged, list)
	}
}
