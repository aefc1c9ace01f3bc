// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package selinux_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/internal/volume/selinux"
)

const readContexts = `# of a distribution
process = "system_u:system_r:container_t:s0"
content = "system_u:object_r:virt_var_lib_t:s0"
; file = "no"
file = "system_u:object_r:container_file_t:s0"
ro_file="system_u:object_r:container_ro_file_t:s0"
`

// nodeFiles returns the files of a node with changes. An empty text removes a file.
func nodeFiles(changes map[string]string) fstest.MapFS {
	files := map[string]string{
		"sys/fs/selinux/enforce":                     "1",
		"proc/self/attr/current":                     "system_u:system_r:kubelet_t:s0\x00",
		"etc/selinux/config":                         "SELINUX=enforcing\n# SELINUXTYPE=other\nSELINUXTYPE=mls \n",
		"etc/selinux/mls/contexts/lxc_contexts":      readContexts,
		"etc/selinux/targeted/contexts/lxc_contexts": "process = a:b:c:s0\nfile = d:e:f:s0",
	}
	maps.Copy(files, changes)
	root := fstest.MapFS{}
	for name, text := range files {
		if text != "" {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	return root
}

func TestReadNodeFromFiles(t *testing.T) {
	enabled := selinux.Node{Enabled: true, DefaultFileLabel: "system_u:object_r:container_file_t:s0"}
	for name, c := range map[string]struct {
		changes map[string]string
		want    selinux.Node
		err     string
	}{
		"enabled":                 {nil, enabled, ""},
		"not mounted":             {map[string]string{"sys/fs/selinux/enforce": ""}, selinux.Node{}, ""},
		"no policy":               {map[string]string{"proc/self/attr/current": "kernel\x00"}, selinux.Node{}, ""},
		"no attributes":           {map[string]string{"proc/self/attr/current": ""}, selinux.Node{}, ""},
		"of podman":               {map[string]string{"usr/share/containers/selinux/contexts": "process=a:b:c\nfile=\"x:y:z\""}, selinux.Node{Enabled: true, DefaultFileLabel: "x:y:z"}, ""},
		"no config":               {map[string]string{"etc/selinux/config": ""}, selinux.Node{Enabled: true}, ""},
		"default policy name":     {map[string]string{"etc/selinux/config": "SELINUX=permissive"}, selinux.Node{Enabled: true, DefaultFileLabel: "d:e:f:s0"}, ""},
		"no contexts":             {map[string]string{"etc/selinux/mls/contexts/lxc_contexts": ""}, selinux.Node{Enabled: true}, ""},
		"no label for processes":  {map[string]string{"etc/selinux/mls/contexts/lxc_contexts": "file = a:b:c"}, selinux.Node{Enabled: true}, ""},
		"path as policy name":     {map[string]string{"etc/selinux/config": "SELINUXTYPE=../../tmp"}, selinux.Node{}, "not the name of a directory"},
		"contexts file too large": {map[string]string{"usr/share/containers/selinux/contexts": strings.Repeat("x", 1<<20)}, selinux.Node{}, "more than 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := selinux.ReadNode(nodeFiles(c.changes))
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}

func TestFileLabelOfOptions(t *testing.T) {
	on := selinux.Node{Enabled: true, DefaultFileLabel: "system_u:object_r:container_file_t:s0"}
	for name, c := range map[string]struct {
		node selinux.Node
		o    *corev1.SELinuxOptions
		want string
		err  string
	}{
		"level":                        {on, &corev1.SELinuxOptions{Level: "s0:c1,c2"}, "system_u:object_r:container_file_t:s0:c1,c2", ""},
		"user":                         {on, &corev1.SELinuxOptions{Level: "s0:c1", User: "me_u"}, "me_u:object_r:container_file_t:s0:c1", ""},
		"role and type of the process": {on, &corev1.SELinuxOptions{Level: "s0:c1", Role: "r", Type: "spc_t"}, "system_u:object_r:container_file_t:s0:c1", ""},
		"no level":                     {on, &corev1.SELinuxOptions{User: "me_u", Type: "spc_t"}, "", ""},
		"no options":                   {on, nil, "", ""},
		"not enabled":                  {selinux.Node{DefaultFileLabel: on.DefaultFileLabel}, &corev1.SELinuxOptions{Level: "s0"}, "", ""},
		"no default":                   {selinux.Node{Enabled: true}, &corev1.SELinuxOptions{Level: "s0"}, "", ""},
		"without levels":               {selinux.Node{Enabled: true, DefaultFileLabel: "u:r:t"}, &corev1.SELinuxOptions{Level: "s0"}, "u:r:t:s0", ""},
		"default label without type":   {selinux.Node{Enabled: true, DefaultFileLabel: "t"}, &corev1.SELinuxOptions{Level: "s0"}, "", "has no type"},
		"a quote":                      {on, &corev1.SELinuxOptions{Level: `s0",suid,x="`}, "", "is invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.node.FileLabel(c.o)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}

func TestMountLabelOfPod(t *testing.T) {
	on := selinux.Node{Enabled: true, DefaultFileLabel: "u:r:t:s0"}
	const mount = "volumeMounts: [{name: v, mountPath: /v}]"
	for name, c := range map[string]struct {
		spec, container string
		want, err       string
	}{
		"label of the pod":       {"securityContext: {seLinuxOptions: {level: s1}}", "{" + mount + "}", "u:r:t:s1", ""},
		"label of the container": {"securityContext: {seLinuxOptions: {level: s1, user: x}}", "{securityContext: {seLinuxOptions: {level: s2}}, " + mount + "}", "u:r:t:s2", ""},
		"volume not mounted":     {"securityContext: {seLinuxOptions: {level: s1}}", "{}", "", ""},
		"volume as a device":     {"securityContext: {seLinuxOptions: {level: s1}}", "{volumeDevices: [{name: v, devicePath: /dev/v}]}", "u:r:t:s1", ""},
		"policy Recursive":       {"securityContext: {seLinuxChangePolicy: Recursive, seLinuxOptions: {level: s1}}", "{" + mount + "}", "", ""},
		"policy MountOption":     {"securityContext: {seLinuxChangePolicy: MountOption, seLinuxOptions: {level: s1}}", "{" + mount + "}", "u:r:t:s1", ""},
		"one agrees": {
			"initContainers: [{name: i, image: i, securityContext: {seLinuxOptions: {level: s3}}, " + mount + "}]",
			"{securityContext: {seLinuxOptions: {level: s3, type: x}}, " + mount + "}", "u:r:t:s3", "",
		},
		"different labels": {
			"initContainers: [{name: i, image: i, securityContext: {seLinuxOptions: {level: s3}}, " + mount + "}]",
			"{securityContext: {seLinuxOptions: {level: s2}}, " + mount + "}", "", "multiple SELinux labels found: u:r:t:s2,u:r:t:s3",
		},
		"one container without options": {
			"initContainers: [{name: i, image: i, securityContext: {seLinuxOptions: {level: s3}}, " + mount + "}]",
			"{" + mount + "}", "u:r:t:s3", "",
		},
		"one container without level": {
			"initContainers: [{name: i, image: i, securityContext: {seLinuxOptions: {level: s3}}, " + mount + "}]",
			"{securityContext: {seLinuxOptions: {type: x}}, " + mount + "}", "", "multiple SELinux labels found: ,u:r:t:s3",
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podtest.Pod(t, c.spec, c.container)
			got, err := on.MountLabel(pod, "v")
			if c.err != "" {
				require.EqualError(t, err, c.err)
				var several *selinux.MultipleLabelsError
				require.ErrorAs(t, err, &several)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
			got, err = selinux.Node{}.MountLabel(pod, "v")
			require.NoError(t, err)
			assert.Empty(t, got, "without SELinux there is no label")
		})
	}
}

func TestCheckConflictComparesLabels(t *testing.T) {
	require.NoError(t, selinux.CheckConflict("pv1", "a", "a"))
	require.EqualError(t, selinux.CheckConflict("pv1", "a", ""), `conflicting SELinux labels of volume pv1: "a" and ""`)
}

// A label cannot inject another mount option.
func FuzzMountOption(f *testing.F) {
	f.Add("u", "s0:c1,c2")
	f.Add(`"`, "\\")
	f.Fuzz(func(t *testing.T, user, level string) {
		label, err := selinux.Node{Enabled: true, DefaultFileLabel: "u:r:t:s0"}.FileLabel(&corev1.SELinuxOptions{User: user, Level: level})
		if err != nil || label == "" {
			return
		}
		require.Equal(t, 2, strings.Count(strings.ReplaceAll(selinux.MountOption(label), `\\`, ""), `"`))
	})
}

func ExampleNode_MountLabel() {
	node := selinux.Node{Enabled: true, DefaultFileLabel: "system_u:object_r:container_file_t:s0"}
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: "s0:c10,c20"}},
		Containers:      []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}},
	}}
	label, err := node.MountLabel(pod, "data")
	fmt.Println(selinux.MountOption(label), err)
	// Output: context="system_u:object_r:container_file_t:s0:c10,c20" <nil>
}
