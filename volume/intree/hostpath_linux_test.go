// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/mounttest"
	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/volume"
)

func TestHostPathCheckedByType(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir) // keeps the path of the socket short
	require.NoError(t, os.Mkdir("dir", 0o755))
	require.NoError(t, os.WriteFile("file", nil, 0o600))
	require.NoError(t, os.Symlink("dir", "link"))
	l, err := net.Listen("unix", "socket")
	require.NoError(t, err)
	defer l.Close()
	for name, c := range map[string]struct{ path, kind, want string }{
		"any type":                              {"dir", "", ""},
		"any type, missing":                     {"none", "", ""},
		"directory":                             {"dir", "Directory", ""},
		"link to a directory":                   {"link", "Directory", ""},
		"file":                                  {"file", "File", ""},
		"socket":                                {"socket", "Socket", ""},
		"character device":                      {"/dev/null", "CharDevice", ""},
		"directory expected, but a file":        {"file", "Directory", "is not a directory, it's a File"},
		"file expected, but a directory":        {"dir", "File", "is not a file, it's a Directory"},
		"socket expected, but a file":           {"file", "Socket", "is not a socket file, it's a File"},
		"character device expected, but a file": {"file", "CharDevice", "is not a character device, it's a File"},
		"block device expected, but a character device": {"/dev/null", "BlockDevice", "is not a block device, it's a CharDevice"},
		"missing directory":                             {"none", "Directory", "is not a directory, unable to determine its type"},
		"created directory":                             {"new/a/b", "DirectoryOrCreate", ""},
		"existing directory":                            {"dir", "DirectoryOrCreate", ""},
		"created directory, but a file exists":          {"file", "DirectoryOrCreate", "is not a directory"},
		"created file":                                  {"new-file", "FileOrCreate", ""},
		"created file without parent":                   {"none/file", "FileOrCreate", "no such file or directory"},
		"path with ..":                                  {"dir/../file", "", "'..'"},
		"unknown type":                                  {"dir", "Door", "Door is an invalid volume type"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			path := c.path
			if !filepath.IsAbs(path) {
				path = dir + "/" + path
			}
			p := podtest.Pod(t, "volumes: [{name: v, hostPath: {path: "+path+", type: '"+c.kind+"'}}]")
			v := n.newVolume(volume.HostPath, p)
			m, err := n.plugins[volume.HostPath].SetUp(t.Context(), v)
			require.NoDirExists(t, v.Dir)
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, volume.Mount{HostPath: path}, m)
			n.tearDown(v)
			if filepath.Base(c.path) != "none" {
				_, err := os.Stat(path)
				require.NoError(t, err, "the host path stays after the teardown")
			}
		})
	}
}

func TestHostPathCheckRefusesInvalidFields(t *testing.T) {
	p := podtest.Pod(t, "volumes: [{name: v, hostPath: {path: /a/../b, type: Door}}]")
	errs := newNode(t).plugins[volume.HostPath].(volume.Checker).Check(p, &p.Spec.Volumes[0], field.NewPath("v"))
	require.Len(t, errs, 2)
	assert.Equal(t, "v.path", errs[0].Field)
	assert.Equal(t, "v.type", errs[1].Field)
}

func TestHungHostPathFailsSetUp(t *testing.T) {
	mounttest.Need(t)
	dir := t.TempDir()
	mounttest.DeadFUSE(t, dir)
	n := newNode(t)
	v := n.newVolume(volume.HostPath, podtest.Pod(t, "volumes: [{name: v, hostPath: {path: "+dir+"/x, type: Directory}}]"))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := n.plugins[volume.HostPath].SetUp(ctx, v)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "does not answer")
}
