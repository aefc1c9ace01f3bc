// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLoadOrder(t *testing.T) {
	const dep = `kernel/net/9p/9pnet.ko: kernel/fs/netfs/netfs.ko
kernel/net/9p/9pnet_virtio.ko: kernel/net/9p/9pnet.ko kernel/fs/netfs/netfs.ko
kernel/fs/9p/9p.ko: kernel/net/9p/9pnet.ko kernel/fs/netfs/netfs.ko
kernel/fs/netfs/netfs.ko:
kernel/drivers/block/virtio-blk.ko:
`
	for _, c := range []struct {
		name    string
		modules []string
		want    []string
	}{
		{"dependencies first", []string{"9p"}, []string{
			"/m/kernel/fs/netfs/netfs.ko", "/m/kernel/net/9p/9pnet.ko", "/m/kernel/fs/9p/9p.ko",
		}},
		{"each once", []string{"9pnet_virtio", "9p"}, []string{
			"/m/kernel/fs/netfs/netfs.ko", "/m/kernel/net/9p/9pnet.ko", "/m/kernel/net/9p/9pnet_virtio.ko", "/m/kernel/fs/9p/9p.ko",
		}},
		{"dash in the file name", []string{"virtio_blk"}, []string{"/m/kernel/drivers/block/virtio-blk.ko"}},
		{"built in", []string{"overlay"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, loadOrder("/m", dep, c.modules)) })
	}
}

func TestWritable(t *testing.T) {
	build := filepath.Join(t.TempDir(), "go-build1", "b001")
	shared := t.TempDir()
	inner, link := filepath.Join(shared, "inner"), filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.MkdirAll(build, 0o700))
	require.NoError(t, os.Mkdir(inner, 0o700))
	require.NoError(t, os.Symlink(shared, link))
	for _, c := range []struct {
		name       string
		env, cover string
		args       []string
		want       []string
	}{
		{name: "nothing", args: []string{"ls"}},
		{"parents first, links followed, each once", inner + "::" + link, "", []string{"ls"}, []string{shared, inner}},
		{"GOCOVERDIR", "", shared, []string{"ls"}, []string{shared}},
		{"test binary in a go-build directory", "", "", []string{build + "/x.test"}, []string{build}},
		{"test binary in another directory", "", "", []string{shared + "/x.test"}, nil},
		{"output directory", "", "", []string{"./x.test", "-test.outputdir=" + shared}, []string{shared}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("VM_RW", c.env)
			t.Setenv("GOCOVERDIR", c.cover)
			got, err := writable(c.args)
			require.NoError(t, err)
			assert.ElementsMatch(t, c.want, got)
			assert.IsIncreasing(t, append([]string{""}, got...))
		})
	}
	t.Run("missing", func(t *testing.T) {
		t.Setenv("VM_RW", shared+"/nowhere")
		_, err := writable([]string{"ls"})
		assert.ErrorContains(t, err, "share writable directory: lstat "+shared+"/nowhere")
	})
}

func TestOptionsFromEnv(t *testing.T) {
	o, err := optionsFromEnv("qemu")
	require.NoError(t, err)
	assert.Equal(t, options{memory: 1024, cpus: 2, timeout: 10 * time.Minute, clock: "host"}, o)
	for _, text := range []string{"0", "-1", "1G", " 1"} {
		t.Setenv("VM_MEM", text)
		_, err := optionsFromEnv("qemu")
		assert.EqualError(t, err, "parse VM_MEM: \""+text+"\" is no positive number")
	}
	t.Setenv("VM_MEM", "")
	t.Setenv("VM_CLOCK", "sun")
	_, err = optionsFromEnv("qemu")
	assert.EqualError(t, err, `parse VM_CLOCK: "sun" is neither host nor own`)
	t.Setenv("VM_CLOCK", "")
	t.Setenv("VM_MACHINE", "1 socket")
	_, err = optionsFromEnv("qemu")
	assert.EqualError(t, err, "parse VM_MACHINE: field nodes is missing")
	_, err = optionsFromEnv("uml")
	assert.EqualError(t, err, "parse VM_MACHINE: kernel uml has one CPU and one NUMA node: use qemu")
}

func TestLockWaitsUntilItsContextEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), path)
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = lock(ctx, path)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	unlock()
	unlock, err = lock(t.Context(), path)
	require.NoError(t, err)
	unlock()
}
