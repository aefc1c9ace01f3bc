// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

func addrs(s ...string) []netip.Addr {
	var list []netip.Addr
	for _, a := range s {
		list = append(list, netip.MustParseAddr(a))
	}
	return list
}

func quantity(s string) resource.Quantity { return resource.MustParse(s) }

func TestContainerSecurityContextOverridesPods(t *testing.T) {
	p := podtest.Pod(t, `securityContext: {runAsUser: 1, runAsGroup: 2, fsGroup: 3, supplementalGroups: [4, 5], supplementalGroupsPolicy: Strict,
		seLinuxOptions: {level: "s0:c1"}, seccompProfile: {type: RuntimeDefault}, appArmorProfile: {type: RuntimeDefault}}`)
	got := container(t, p, podspec.Launch{Image: &cri.Image{UID: new(int64(9))}}, podspec.Options{}).Security
	assert.Equal(t, new(int64(1)), got.RunAsUser)
	assert.Equal(t, new(int64(2)), got.RunAsGroup)
	assert.Equal(t, []int64{3, 4, 5}, got.SupplementalGroups)
	assert.Equal(t, cri.GroupsStrict, got.SupplementalGroupsPolicy)
	assert.Equal(t, &cri.SELinux{Level: "s0:c1"}, got.SELinux)
	assert.Equal(t, &cri.SecurityProfile{Type: cri.ProfileRuntimeDefault}, got.Seccomp)
	assert.Equal(t, &cri.SecurityProfile{Type: cri.ProfileRuntimeDefault}, got.AppArmor)
	s := sandbox(t, p, podspec.Options{}).Security
	assert.Equal(t, got.SupplementalGroups, s.SupplementalGroups)
	assert.Equal(t, got.RunAsUser, s.RunAsUser)
	assert.False(t, s.Privileged)

	p = podtest.Pod(t, "securityContext: {runAsUser: 1, seccompProfile: {type: RuntimeDefault}}", `securityContext: {runAsUser: 7, privileged: true,
		readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, procMount: Unmasked, capabilities: {add: [NET_ADMIN], drop: [ALL]},
		seccompProfile: {type: Localhost, localhostProfile: a/b.json}, appArmorProfile: {type: Localhost, localhostProfile: prof}}`)
	got = container(t, p, podspec.Launch{}, podspec.Options{}).Security
	assert.Empty(t, cmp.Diff(cri.ContainerSecurity{
		Capabilities:   &cri.Capabilities{Add: []string{"NET_ADMIN"}, Drop: []string{"ALL"}},
		Privileged:     true,
		Namespaces:     cri.NamespaceOptions{PID: cri.NamespaceContainer, User: &cri.UserNamespace{Mode: cri.NamespaceNode}},
		RunAsUser:      new(int64(7)),
		ReadonlyRootfs: true,
		NoNewPrivs:     true,
		Seccomp:        &cri.SecurityProfile{Type: cri.ProfileLocalhost, LocalhostRef: "/var/lib/kubelet/seccomp/a/b.json"},
		AppArmor:       &cri.SecurityProfile{Type: cri.ProfileLocalhost, LocalhostRef: "prof"},
	}, got))
	assert.True(t, sandbox(t, p, podspec.Options{}).Security.Privileged)
}

func TestSeccompAndAppArmorDefaults(t *testing.T) {
	p := podtest.Pod(t)
	s := container(t, p, podspec.Launch{}, podspec.Options{SeccompDefault: true, MaskedPaths: []string{"/x"}}).Security
	assert.Equal(t, &cri.SecurityProfile{Type: cri.ProfileRuntimeDefault}, s.Seccomp)
	assert.Contains(t, s.MaskedPaths, "/x")
	assert.Nil(t, s.AppArmor)
	p.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/c": "localhost/old"}
	s = container(t, p, podspec.Launch{}, podspec.Options{}).Security
	assert.Equal(t, &cri.SecurityProfile{Type: cri.ProfileLocalhost, LocalhostRef: "old"}, s.AppArmor)
}

func TestContainerRunsAsImageUser(t *testing.T) {
	for name, c := range map[string]struct {
		image *cri.Image
		uid   *int64
		user  string
	}{
		"number":        {&cri.Image{UID: new(int64(9)), Username: "x"}, new(int64(9)), ""},
		"name":          {&cri.Image{Username: "nginx"}, nil, "nginx"},
		"none":          {&cri.Image{}, new(int64(0)), ""},
		"unknown image": {nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := container(t, podtest.Pod(t), podspec.Launch{Image: c.image}, podspec.Options{}).Security
			assert.Equal(t, c.uid, s.RunAsUser)
			assert.Equal(t, c.user, s.RunAsUsername)
		})
	}
}

func TestRunAsNonRoot(t *testing.T) {
	for name, c := range map[string]struct {
		spec, container string
		image           *cri.Image
		want            string
	}{
		"user of pod":               {spec: "runAsUser: 1", image: &cri.Image{}},
		"user of image":             {image: &cri.Image{UID: new(int64(1))}},
		"disabled in the container": {container: "runAsNonRoot: false", image: &cri.Image{}},
		"user 0 of the container":   {container: "runAsUser: 0", image: &cri.Image{UID: new(int64(1))}, want: "runAsUser is 0"},
		"image runs as root":        {image: &cri.Image{UID: new(int64(0))}, want: "the image runs as root"},
		"image names no user":       {image: &cri.Image{}, want: "the image runs as root"},
		"image names a user":        {image: &cri.Image{Username: "nginx"}, want: "the image runs as user nginx"},
		"image has an invalid user": {image: &cri.Image{UID: new(int64(-1))}, want: "must be between 0 and 2147483647"},
		"unknown image":             {want: "the user of the image is not known"},
	} {
		t.Run(name, func(t *testing.T) {
			p := podtest.Pod(t, "securityContext: {runAsNonRoot: true, "+c.spec+"}", "securityContext: {"+c.container+"}")
			_, err := podspec.Container(p, &p.Spec.Containers[0], podspec.Launch{Image: c.image}, podspec.Options{})
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, "spec.containers[0].securityContext.runAsNonRoot")
			assert.ErrorContains(t, err, c.want)
		})
	}
}

func TestStopSignal(t *testing.T) {
	p := podtest.Pod(t, "os: {name: linux}", "lifecycle: {stopSignal: SIGRTMIN+3}")
	assert.Empty(t, podapi.Validate(p))
	assert.Equal(t, cri.Signal("SIGRTMIN+3"), container(t, p, podspec.Launch{}, podspec.Options{}).StopSignal)
}
