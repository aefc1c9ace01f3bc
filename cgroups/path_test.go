// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
)

func TestPathConvertsToCgroupfsAndSystemdNames(t *testing.T) {
	for _, tc := range []struct{ path, cgroupfs, systemd, slice string }{
		{"", "/", "/", "-.slice"},
		{"test", "/test", "/test.slice", "test.slice"},
		{"kubepods/burstable", "/kubepods/burstable", "/kubepods.slice/kubepods-burstable.slice", "kubepods-burstable.slice"},
		{
			"kubepods/burstable/pod1234-ab", "/kubepods/burstable/pod1234-ab",
			"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234_ab.slice",
			"kubepods-burstable-pod1234_ab.slice",
		},
		{"a--b/c", "/a--b/c", "/a__b.slice/a__b-c.slice", "a__b-c.slice"},
		{"test.slice", "/test.slice", "/test.slice.slice", "test.slice.slice"},
	} {
		t.Run(tc.path, func(t *testing.T) {
			p := cgroups.Path(tc.path)
			require.NoError(t, p.Validate())
			assert.Equal(t, tc.cgroupfs, p.Cgroupfs())
			systemd, err := p.Systemd()
			require.NoError(t, err)
			assert.Equal(t, tc.systemd, systemd)
			slice, err := p.Slice()
			require.NoError(t, err)
			assert.Equal(t, tc.slice, slice)

			for name, parse := range map[string]func(string) (cgroups.Path, error){
				tc.cgroupfs:                          cgroups.ParseCgroupfs,
				strings.TrimPrefix(tc.cgroupfs, "/"): cgroups.ParseCgroupfs,
				tc.systemd:                           cgroups.ParseSystemd,
				tc.slice:                             cgroups.ParseSystemd,
			} {
				got, err := parse(name)
				if assert.NoError(t, err, name) && name != "" {
					assert.Equal(t, p, got, name)
				}
			}
		})
	}
}

// The kubelet converts these components to an ambiguous unit name or to one that systemd rejects.
func TestSystemdRejectsComponents(t *testing.T) {
	for path, complaint := range map[cgroups.Path]string{
		"kubepods/a_b": `cgroup path "kubepods/a_b": a slice of systemd cannot hold the '_' of "a_b"`,
		"a b":          `cgroup path "a b": a slice of systemd cannot hold the ' ' of "a b"`,
		"a@b":          `cgroup path "a@b": a slice of systemd cannot hold the '@' of "a@b"`,
		"é":            `cgroup path "é": a slice of systemd cannot hold the 'é' of "é"`,
		"kubepods/..":  `cgroup path "kubepods/..": component ".." is not a name`,
	} {
		_, err := path.Systemd()
		assert.EqualError(t, err, complaint)
		_, err = path.Slice()
		assert.EqualError(t, err, complaint)
	}
}

func TestSystemdRejectsLongNames(t *testing.T) {
	longest := cgroups.Path(strings.Repeat("a", 255-len(".slice")))
	slice, err := longest.Slice()
	require.NoError(t, err)
	assert.Len(t, slice, 255)
	_, err = (longest + "a").Systemd()
	assert.ErrorContains(t, err, "its slice has a name of more than 255 bytes")
	_, err = cgroups.ParseSystemd(strings.Repeat("a-", 1<<20) + "a.slice")
	assert.Error(t, err, "a long name is refused before its path, which would need terabytes, is built")
}

func TestParseSystemdRejectsOtherUnits(t *testing.T) {
	for name, complaint := range map[string]string{
		"/kubepods.slice/cri-containerd-1.scope": `cgroup "/kubepods.slice/cri-containerd-1.scope" is not a systemd slice`,
		"/kubepods.slice/":                       `cgroup "/kubepods.slice/" is not a systemd slice`,
		"/system.slice/a-b.slice":                `cgroup "/system.slice/a-b.slice" is not the directory of that systemd slice: "/a.slice/a-b.slice"`,
		"-a.slice":                               `cgroup "-a.slice" is not a systemd slice: cgroup path "/a": begins with a slash: a path is written from below the root, as "a"`,
		"..-x.slice":                             `cgroup "..-x.slice" is not a systemd slice: cgroup path "../x": component ".." is not a name`,
		".slice":                                 `cgroup ".slice" is not a systemd slice`,
	} {
		p, err := cgroups.ParseSystemd(name)
		assert.EqualError(t, err, complaint)
		assert.Empty(t, p)
	}
}

func TestValidateRejectsInvalidPaths(t *testing.T) {
	for path, complaint := range map[cgroups.Path]string{
		"/":            `cgroup path "/": empty component`,
		"/kubepods":    `cgroup path "/kubepods": begins with a slash: a path is written from below the root, as "kubepods"`,
		"kubepods/":    `cgroup path "kubepods/": empty component`,
		"kubepods//a":  `cgroup path "kubepods//a": empty component`,
		"..":           `cgroup path "..": component ".." is not a name`,
		"a/../../b":    `cgroup path "a/../../b": component ".." is not a name`,
		"a/./b":        `cgroup path "a/./b": component "." is not a name`,
		"a\x00b":       `cgroup path "a\x00b": component "a\x00b" holds a newline or a NUL`,
		"kubepods/a\n": `cgroup path "kubepods/a\n": component "a\n" holds a newline or a NUL`,
	} {
		assert.EqualError(t, path.Validate(), complaint)
		_, err := cgroups.ParseCgroupfs("/" + string(path))
		assert.EqualError(t, err, complaint)
	}
	for _, components := range [][]string{{""}, {"a", ""}, {"", "a"}, {"a/b"}, {"/"}, {"/a"}, {"a/"}, {".."}, {"a", ".."}, {"a/../b"}} {
		p, err := cgroups.NewPath(components...)
		assert.Error(t, err, "%q", components)
		assert.Empty(t, p)
		assert.Error(t, cgroups.Path("kubepods").Join(components...).Validate(), "%q", components)
	}
}

func TestPathParentBaseAndComponents(t *testing.T) {
	p, err := cgroups.NewPath("kubepods", "burstable", "pod1")
	require.NoError(t, err)
	assert.Equal(t, cgroups.Path("kubepods/burstable/pod1"), p)
	assert.Equal(t, cgroups.Path("kubepods/burstable"), p.Parent())
	assert.Equal(t, "pod1", p.Base())
	assert.Equal(t, []string{"kubepods", "burstable", "pod1"}, p.Components())

	root, err := cgroups.NewPath()
	require.NoError(t, err)
	assert.Equal(t, cgroups.Path(""), root)
	assert.Equal(t, root, root.Parent())
	assert.Equal(t, root, cgroups.Path("kubepods").Parent())
	assert.Empty(t, root.Base())
	assert.Empty(t, root.Components())
}

func TestErrorNamesOperationCgroupAndFile(t *testing.T) {
	err := &cgroups.Error{Op: "apply", Path: "kubepods/pod1", File: "memory.max", Err: fs.ErrNotExist}
	assert.EqualError(t, err, "apply cgroup /kubepods/pod1: memory.max: file does not exist")
	assert.True(t, errors.Is(err, fs.ErrNotExist))

	forged := &cgroups.Error{Op: "remove", Path: "x: done\n", Err: fs.ErrInvalid}
	assert.EqualError(t, forged, `remove cgroup "/x: done\n": invalid argument`)
}

// FuzzPath checks that Join never makes a valid path from invalid components, and that Components returns its arguments.
func FuzzPath(f *testing.F) {
	f.Add("kubepods", "pod1234-ab")
	f.Add("a/b", "..")
	f.Add("", "")
	f.Add("a_b", "-")
	f.Fuzz(func(t *testing.T, first, second string) {
		components := []string{first, second}
		valid := true
		for _, c := range components {
			valid = valid && c != "" && c != "." && c != ".." && !strings.ContainsAny(c, "/\x00\n")
		}
		p, err := cgroups.NewPath(components...)
		require.Equal(t, valid, err == nil, "%q: %v", components, err)
		if !valid {
			return
		}
		assert.Equal(t, components, p.Components())
		assert.Equal(t, p, p.Parent().Join(p.Base()))
		again, err := cgroups.ParseCgroupfs(p.Cgroupfs())
		require.NoError(t, err)
		assert.Equal(t, p, again)

		dirs, err := p.Systemd()
		if err != nil {
			return
		}
		again, err = cgroups.ParseSystemd(dirs)
		require.NoError(t, err)
		assert.Equal(t, p, again)
	})
}

// FuzzParseSystemd checks that Systemd restores the name of each parsed slice.
func FuzzParseSystemd(f *testing.F) {
	f.Add("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234_ab.slice")
	f.Add("kubepods-burstable.slice")
	f.Add("/system.slice/a.service")
	f.Add("-.slice")
	f.Fuzz(func(t *testing.T, name string) {
		p, err := cgroups.ParseSystemd(name)
		if err != nil {
			return
		}
		require.NoError(t, p.Validate())
		dirs, err := p.Systemd()
		require.NoError(t, err)
		slice, err := p.Slice()
		require.NoError(t, err)
		assert.Contains(t, []string{dirs, dirs[1:], slice, "/" + slice, ""}, name)
	})
}
